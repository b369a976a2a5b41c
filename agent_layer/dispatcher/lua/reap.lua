-- Take back lapsed leases, put back what has waited out its back-off, go on with groups that other scripts left.
--
-- ARGV: max_attempts, window, rate, lease_ms. Returns the number of lapsed leases, and of groups that are unfinished
-- still; each call does as much as does not hold up the server.

local RULES = rules_at(1)

-- Take back a lease that lapsed: its holder is gone. An attempt that has a checkpoint goes on from there, if it may;
-- any other is lost.
local function reclaim_lease(rollout)
  local group, run, status, attempts, worker, checkpoint, began, failures, server = unpack(redis.call('HMGET',
    key('r', rollout), 'group', 'run', 'status', 'attempts', 'worker', 'checkpoint', 'began', 'failures', 'server'))
  if adopt(rollout, { group = group, run = run, status = status, attempts = attempts, server = server }) then
    return
  end
  local error = 'infra: ' .. worker .. ' sent no heartbeat before its lease lapsed'
  if not checkpoint or failures + 1 >= RULES.max_attempts then
    end_attempt('lost', rollout, attempts - 1, group, run, error)
  end
  if read_group(group).state ~= 'open' then
    cancel(rollout, read_group(group).cut)
    return
  end
  count(run, 'lapsed')
  requeue(rollout, { group = group, run = run, status = status, began = began, attempts = attempts },
    { error = error, cause = 'infra', counts = true, max_attempts = RULES.max_attempts, delay_ms = 0 })
end

-- Take back leases that lapsed, and end the attempts of cancelled rollouts whose workers had the time to do it.
local function reap()
  local clock = touch_clock(tonumber(ARGV[4]))
  local latest = clock.grace_until > NOW and clock.outage_since or NOW
  local lapsed = redis.call('ZRANGEBYSCORE', key('leases'), '-inf', latest, 'LIMIT', 0, 100)
  for _, rollout in ipairs(lapsed) do
    reclaim_lease(rollout)
  end
  for _, rollout in ipairs(redis.call('ZRANGEBYSCORE', key('parting'), '-inf', latest, 'LIMIT', 0, 100)) do
    schedule_removal(key('parting'), rollout)
    local group, run, attempts = unpack(redis.call('HMGET', key('r', rollout), 'group', 'run', 'attempts'))
    if group then
      end_attempt('cancelled', rollout, attempts - 1, group, run, 'user: the rollout was cancelled')
    end
  end
  return #lapsed
end

-- Put back what has waited out its back-off.
local function promote()
  local due = redis.call('ZRANGEBYSCORE', key('delayed'), '-inf', NOW, 'LIMIT', 0, 256)
  for _, rollout in ipairs(due) do
    schedule_removal(key('delayed'), rollout)
    local r = key('r', rollout)
    redis.call('HSET', r, 'queued_at', AT)
    enter(rollout, unpack(redis.call('HMGET', r, 'ready', 'score')))
  end
end

local num = reap()
promote()
take_up_groups()
write_all(RULES)
return { num, num_unfinished() }
