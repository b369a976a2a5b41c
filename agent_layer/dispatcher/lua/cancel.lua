-- Cancel all rollouts of groups that are not final yet; running ones learn it at their next heartbeat.
--
-- ARGV: group ids. Returns the number of rollouts that were cancelled.

local function cancel(rollout)
  local r = key('r', rollout)
  local status, name = unpack(redis.call('HMGET', r, 'status', 'ready'))
  if FINAL[status] then
    return 0
  end
  redis.call('ZREM', key('ready', name), rollout)
  redis.call('ZREM', key('delayed'), rollout)
  redis.call('ZREM', key('leases'), rollout)
  redis.call('HDEL', r, 'token')
  finish(rollout, 'cancelled')
  return 1
end

local num = 0
for _, group in ipairs(ARGV) do
  local state, size = unpack(redis.call('HMGET', key('g', group), 'state', 'group_size'))
  for member = 0, state == 'open' and size - 1 or -1 do
    num = num + cancel(group .. '.' .. member)
  end
end
return num
