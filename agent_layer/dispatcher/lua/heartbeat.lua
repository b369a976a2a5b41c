-- Keep leases, and say that a worker lives.
--
-- ARGV: lease_ms, worker, its description as JSON, then per lease: rollout_id token status.
-- Returns per lease 'go', 'cancel' (the rollout was cancelled) or 'lost' (the lease is no longer held).

local function keep(rollout, token, status)
  local r = key('r', rollout)
  local held, found = unpack(redis.call('HMGET', r, 'token', 'status'))
  if held ~= token then
    return found == 'cancelled' and 'cancel' or 'lost'
  end
  redis.call('ZADD', key('leases'), 'XX', NOW + ARGV[1], rollout)
  redis.call('HSET', r, 'status', status)
  return 'go'
end

local silent = redis.call('ZRANGEBYSCORE', key('workers'), '-inf', NOW - KEEP_SECONDS * 1000)
for _, worker in ipairs(silent) do
  redis.call('ZREM', key('workers'), worker)
  redis.call('HDEL', key('worker'), worker)
end
redis.call('ZADD', key('workers'), NOW, ARGV[2])
redis.call('HSET', key('worker'), ARGV[2], ARGV[3])
local answers = {}
for at = 4, #ARGV, 3 do
  answers[#answers + 1] = keep(ARGV[at], ARGV[at + 1], ARGV[at + 2])
end
return answers
