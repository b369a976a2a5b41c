-- Ends of leases without a result: released, retried, dead, cancelled, lapsed.

local removals = {} -- sorted set → rollouts that are to be taken out of it
local ready_by_set = {} -- those of them that are ready sets → their names

local function schedule_removal(set, rollout)
  removals[set] = removals[set] or {}
  table.insert(removals[set], rollout)
end

local function leave_ready(ready, rollout)
  local set = key('ready', ready)
  ready_by_set[set] = ready
  schedule_removal(set, rollout)
end

local function end_lease(rollout, run)
  schedule_removal(key('leases'), rollout)
  count(run, 'leased', -1)
end

local function flush_removals()
  for set, rollouts in pairs(removals) do
    for at = 1, #rollouts, MAX_AT_ONCE do
      local num = redis.call('ZREM', set, unpack(rollouts, at, math.min(#rollouts, at + MAX_AT_ONCE - 1)))
      if ready_by_set[set] then
        count_waiting(parse_set(ready_by_set[set]).needs, -num)
      end
    end
  end
  removals = {}
end

-- A repeated error of the same attempt is kept once: an attempt with a checkpoint may be passed over for days.
local function keep_error(r, error, attempt)
  local num = tonumber(redis.call('HGET', r, 'errors') or 0)
  local last, of = unpack(redis.call('HMGET', r, 'error:' .. num, 'error_attempt:' .. num))
  if last == error and tonumber(of) == attempt then
    return
  end
  num = redis.call('HINCRBY', r, 'errors', 1)
  redis.call('HSET', r, 'error:' .. num, error, 'error_attempt:' .. num, attempt)
end

-- Write down how an attempt ended that no worker will end.
local function end_attempt(kind, rollout, attempt, group, run, error)
  redis.call('XADD', OUTBOX, '*', 'kind', kind, 'trajectory_id', trajectory_id(rollout, attempt), 'rollout_id', rollout,
    'group_id', group, 'run', run, 'at', now_of_day(), 'error', error)
end

-- End the lease of a rollout without a result: hand it on now or after a delay, or give it up.
-- held is {group, run, status, began, attempts}, how is {error, cause, counts, max_attempts, delay_ms}
local function requeue(rollout, held, how)
  local r = key('r', rollout)
  end_lease(rollout, held.run)
  keep_error(r, how.error, held.attempts - 1)
  if how.counts then
    count(held.run, 'failed:' .. how.cause)
    note_end(held.run, how.error)
  end
  local status, ran = held.status, NOW - held.began
  if redis.call('HINCRBY', r, 'failures', how.counts and 1 or 0) >= how.max_attempts then
    redis.call('ZADD', key('dead'), NOW, rollout)
    redis.call('HDEL', r, 'checkpoint') -- its attempt is over; the next one begins without a checkpoint
    count(held.run, 'dead')
    finish(rollout, status, 'dead', read_group(held.group), 'token', '')
  elseif how.delay_ms > 0 then
    queue_grew = true
    note_entered(redis.call('HGET', r, 'ready'), math.huge, 1) -- a waiting worker looks again, and learns when the delay ends
    move(rollout, status, 'queued', 'queued_at', AT, 'token', '', 'ran', ran)
    redis.call('ZADD', key('delayed'), NOW + how.delay_ms, rollout)
  else
    local ready, score = unpack(redis.call('HMGET', r, 'ready', 'score'))
    enqueue(rollout, status, ready, score, 'token', '', 'ran', ran)
  end
end

-- Write down that the newest attempt was cancelled, unless it is the accepted one.
local function end_cancelled(rollout, held, accepted)
  if tonumber(accepted) ~= held.attempts - 1 then
    end_attempt('cancelled', rollout, held.attempts - 1, held.group, held.run, 'user: the rollout was cancelled')
  end
end

-- Take a rollout out of wherever it waits or runs; return how long its attempt ran, nil when it never began. This wakes
-- the worker that runs it; whether that worker is alive shows when the lease would have lapsed. accepted is the attempt
-- that counts; nil where none does.
local function withdraw(rollout, held, accepted)
  if held.token and held.token ~= '' then
    redis.call('ZADD', key('parting'), redis.call('ZSCORE', key('leases'), rollout) or NOW, rollout)
    end_lease(rollout, held.run)
    notify_worker(held.worker)
    return NOW - held.began
  end
  leave_ready(held.ready, rollout)
  schedule_removal(key('delayed'), rollout)
  schedule_removal(key('paused'), rollout)
  if held.checkpoint then
    end_cancelled(rollout, held, accepted)
    return held.ran
  end
end

local HELD_FIELDS = { 'token', 'group', 'run', 'status', 'ready', 'worker', 'began', 'ran', 'checkpoint', 'attempts' }

-- Cancel a rollout that is not final, whatever it does.
local function cancel(rollout, held, why)
  local ran, group = withdraw(rollout, held), read_group(held.group)
  if why == 'surplus' and ran then
    group.num_cut, group.cut_ms = group.num_cut + 1, group.cut_ms + ran
  end
  count(held.run, why)
  finish(rollout, held.status, 'cancelled', group, 'token', '')
end
