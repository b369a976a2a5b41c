-- Take back lapsed leases, put back what has waited out its back-off, go on with groups that other scripts left.
--
-- ARGV: max_attempts, window, rate, lease_ms. Returns the number of lapsed leases, and of groups that are unfinished
-- still; each call does as much as does not hold up the server.

local RULES = rules_at(1)
local MAX_ENDED, MAX_DUE = 48, 64

-- Take back a lease that lapsed: its holder is gone. An attempt that has a checkpoint goes on from there, if it may;
-- any other is lost.
local function reclaim_lease(rollout)
  local held = read_fields(key('r', rollout), HELD_FIELDS)
  if not held.status or FINAL[held.status] then
    schedule_removal(key('leases'), rollout)
    return
  elseif end_decided(rollout, held) then
    return
  end
  local error = 'infra: ' .. held.worker .. ' sent no heartbeat before its lease lapsed'
  if not held.checkpoint or redis.call('HGET', key('r', rollout), 'failures') + 1 >= RULES.max_attempts then
    end_attempt('lost', rollout, held.attempts - 1, held.group, held.run, error)
  end
  count(held.run, 'lapsed')
  requeue(rollout, held, { error = error, cause = 'infra', counts = true, max_attempts = RULES.max_attempts, delay_ms = 0 })
end

-- Take back leases that lapsed, and end the attempts of cancelled rollouts whose workers had the time to do it.
local function reap()
  local clock = touch_clock(tonumber(ARGV[4]))
  local latest = clock.grace_until > NOW and clock.outage_since or NOW
  local lapsed = redis.call('ZRANGEBYSCORE', key('leases'), '-inf', latest, 'LIMIT', 0, MAX_ENDED)
  for _, rollout in ipairs(lapsed) do
    reclaim_lease(rollout)
  end
  for _, rollout in ipairs(redis.call('ZRANGEBYSCORE', key('parting'), '-inf', latest, 'LIMIT', 0, MAX_ENDED)) do
    schedule_removal(key('parting'), rollout)
    local held = read_fields(key('r', rollout), HELD_FIELDS)
    if held.group then
      end_cancelled(rollout, held, redis.call('HGET', key('r', rollout), 'accepted'))
    end
  end
  return #lapsed
end

-- Put back what has waited out its back-off.
local function promote()
  local due = redis.call('ZRANGEBYSCORE', key('delayed'), '-inf', NOW, 'LIMIT', 0, MAX_DUE)
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
