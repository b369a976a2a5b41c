-- This file holds what all scripts of the queue share; it is put in front of each of them.
--
-- KEYS[1] prefix of the dispatcher's keys, KEYS[2] the outbox, KEYS[3] and KEYS[4] what the keys of groups and of
-- trajectories in the index begin with, KEYS[5] hash of what was deleted. Everything else is derived from them, in
-- their slot.
--   r:<rollout>   hash: group member status ready score attempts failures token worker queued_at at ended accepted error:<attempt>
--   g:<group>     hash: run task_id task_type split group_size open state task queued_at closed_at
--   ready         set of names of ready sets, each 'run/need,need'
--   ready:<name>  sorted set of rollouts that may be claimed now, by score
--   delayed       sorted set of rollouts that wait out a back-off, by when that ends
--   leases        sorted set of leased rollouts, by when the lease lapses
--   dead          sorted set of rollouts that failed too often, by when the last attempt ended
--   open          sorted set of groups that are not closed, by order of asking
--   paused        set of runs; seq, tokens  counters; wake, closed  streams that wake whoever waits
-- All times are milliseconds of this server's clock.

local OUTBOX = KEYS[2]
local STORED_GROUP, STORED_TRAJECTORY, DELETED = KEYS[3], KEYS[4], KEYS[5] -- they outlive the queue: the index is rebuilt
local TIME = redis.call('TIME')
local NOW = TIME[1] * 1000 + math.floor(TIME[2] / 1000)
local KEEP_SECONDS = 86400 -- how long rollouts of a closed group can still be asked about
local FINAL = { completed = true, truncated = true, cancelled = true, dead = true }

local function key(...)
  return KEYS[1] .. ':' .. table.concat({ ... }, ':')
end

local function seconds(milliseconds)
  return string.format('%.3f', milliseconds / 1000)
end

local function trajectory_id(rollout, attempt) -- as schema.ids.trajectory_id_of
  return rollout .. '-' .. attempt
end

local queue_grew = false

-- Wake whoever waits for rollouts, once a script is enough: they look again at all ready sets.
local function wake()
  if queue_grew then
    redis.call('XADD', key('wake'), 'MAXLEN', '~', 64, '*', 'at', NOW)
  end
end

-- Make a rollout claimable, at the place that it had when it was added.
local function enqueue(rollout)
  queue_grew = true
  local r = key('r', rollout)
  local name, score = unpack(redis.call('HMGET', r, 'ready', 'score'))
  redis.call('HSET', r, 'status', 'queued', 'queued_at', NOW)
  redis.call('SADD', key('ready'), name)
  redis.call('ZADD', key('ready', name), score, rollout)
end

-- Write the group down, for good: its members are the accepted attempts, in member order.
local function close_group(group)
  local g, members = key('g', group), {}
  local run, task_id, task_type, split, size =
    unpack(redis.call('HMGET', g, 'run', 'task_id', 'task_type', 'split', 'group_size'))
  for member = 0, tonumber(size) - 1 do
    local rollout = group .. '.' .. member -- as schema.ids.rollout_id_of
    local r = key('r', rollout)
    local status, accepted = unpack(redis.call('HMGET', r, 'status', 'accepted'))
    if accepted then
      members[#members + 1] = trajectory_id(rollout, accepted)
    end
    if status ~= 'dead' then
      redis.call('EXPIRE', r, KEEP_SECONDS)
    end
  end
  redis.call('XADD', OUTBOX, '*', 'kind', 'group', 'group_id', group, 'run', run, 'task_id', task_id,
    'task_type', task_type, 'split', split, 'group_size', size, 'at', seconds(NOW), 'members', table.concat(members, ','))
  redis.call('HSET', g, 'state', 'closed', 'closed_at', NOW, 'num_accepted', #members)
  redis.call('HDEL', g, 'task')
  redis.call('ZREM', key('open'), group)
  redis.call('XADD', key('closed'), 'MAXLEN', '~', 1024, '*', 'group_id', group)
end

-- Give a rollout its final status; the last of a group closes it.
local function finish(rollout, status)
  local r = key('r', rollout)
  local group = redis.call('HGET', r, 'group')
  redis.call('HSET', r, 'status', status, 'at', NOW)
  if redis.call('HINCRBY', key('g', group), 'open', -1) == 0 then
    close_group(group)
  end
end

-- End the lease of a rollout without a result: hand it on now or after a delay, or give it up.
local function hand_on(rollout, error, counts, max_attempts, delay_ms)
  local r = key('r', rollout)
  local attempt = redis.call('HGET', r, 'attempts') - 1
  redis.call('ZREM', key('leases'), rollout)
  redis.call('HDEL', r, 'token')
  redis.call('HSET', r, 'error:' .. attempt, error)
  if redis.call('HINCRBY', r, 'failures', counts and 1 or 0) >= max_attempts then
    redis.call('ZADD', key('dead'), NOW, rollout)
    finish(rollout, 'dead')
  elseif delay_ms > 0 then
    queue_grew = true
    redis.call('HSET', r, 'status', 'queued', 'queued_at', NOW)
    redis.call('ZADD', key('delayed'), NOW + delay_ms, rollout)
  else
    enqueue(rollout)
  end
end

-- Take back leases that lapsed: their holders are gone, and the attempts are lost.
local function reap(max_attempts)
  local lapsed = redis.call('ZRANGEBYSCORE', key('leases'), '-inf', NOW, 'LIMIT', 0, 100)
  for _, rollout in ipairs(lapsed) do
    local group, attempts, worker = unpack(redis.call('HMGET', key('r', rollout), 'group', 'attempts', 'worker'))
    local error = 'infra: ' .. worker .. ' sent no heartbeat before its lease lapsed'
    redis.call('XADD', OUTBOX, '*', 'kind', 'lost', 'trajectory_id', trajectory_id(rollout, attempts - 1),
      'rollout_id', rollout, 'group_id', group, 'run', redis.call('HGET', key('g', group), 'run'),
      'at', seconds(NOW), 'error', error)
    hand_on(rollout, error, true, max_attempts, 0)
  end
  return #lapsed
end

-- Put back what has waited out its back-off.
local function promote()
  local due = redis.call('ZRANGEBYSCORE', key('delayed'), '-inf', NOW, 'LIMIT', 0, 256)
  for _, rollout in ipairs(due) do
    redis.call('ZREM', key('delayed'), rollout)
    enqueue(rollout)
  end
end
