-- Tasks of the rollouts that a worker is likely to lease next, in the order of choose.lua. Writes nothing.
--
-- ARGV: num, run or '' for any, then what the worker is capable of. Returns tasks as they were added.

local tasks = {}

now_served = tonumber(redis.call('HGET', key('clock'), 'turn') or 0)
take_in_order(tonumber(ARGV[1]), ARGV[2], { unpack(ARGV, 3) }, function(rollout)
  tasks[#tasks + 1] = redis.call('HGET', key('g', redis.call('HGET', key('r', rollout), 'group')), 'task') or ''
  return true
end)
return tasks
