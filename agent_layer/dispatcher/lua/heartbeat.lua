-- Renew leases, and record that a worker is alive.
--
-- ARGV: lease_ms, worker, its description as JSON, then per lease: rollout_id token status.
-- Returns 'go' or 'drain' for the worker, then per lease 'go', 'pause' (its run is to pause), 'cancel' (the rollout was
-- cancelled) or 'lost' (the lease is no longer held).

local WORKER = ARGV[2]
local pausing, kept = {}, {}

local function is_pausing(run)
  if pausing[run] == nil then
    pausing[run] = redis.call('SISMEMBER', key('holds'), run) == 1
  end
  return pausing[run]
end

local function keep(rollout, token, status)
  local r = key('r', rollout)
  local held, found, run = unpack(redis.call('HMGET', r, 'token', 'status', 'run'))
  if not holds(token, held) then
    return found == 'cancelled' and 'cancel' or 'lost'
  end
  kept[#kept + 1] = NOW + ARGV[1]
  kept[#kept + 1] = rollout
  if may_move(found, status) then -- a report older than the current phase changes nothing
    move(rollout, found, status)
  end
  return status == 'running' and is_pausing(run) and 'pause' or 'go'
end

touch_clock(tonumber(ARGV[1]))
local silent = redis.call('ZRANGEBYSCORE', key('workers'), '-inf', NOW - KEEP_SECONDS * 1000, 'LIMIT', 0, 100)
for _, worker in ipairs(silent) do
  redis.call('ZREM', key('workers'), worker)
  redis.call('HDEL', key('worker'), worker)
  redis.call('HDEL', key('claims'), worker)
  redis.call('SREM', key('draining'), worker)
end
redis.call('ZADD', key('workers'), NOW, WORKER)
redis.call('HSET', key('worker'), WORKER, ARGV[3])
local answers = { redis.call('SISMEMBER', key('draining'), WORKER) == 1 and 'drain' or 'go' }
for at = 4, #ARGV, 3 do
  answers[#answers + 1] = keep(ARGV[at], ARGV[at + 1], ARGV[at + 2])
end
if #kept > 0 then
  redis.call('ZADD', key('leases'), 'XX', unpack(kept))
end
return answers
