-- Queue the rollouts of groups that are not known yet.
--
-- ARGV: max_queued, then per group: group_id run task_id task_type split group_size needs priority task.
-- Returns per group 1 (queued) or 0 (known before), or {-1, num_queued} when the queue is too full for all of them.

local FIELDS = 9
local PRIORITY_STEP = 1099511627776 -- 2^40: more than ever will be added, and a double still counts below it

local function num_queued()
  local num = redis.call('ZCARD', key('delayed'))
  for _, name in ipairs(redis.call('SMEMBERS', key('ready'))) do
    num = num + redis.call('ZCARD', key('ready', name))
  end
  return num
end

local function is_known(group)
  return redis.call('EXISTS', key('g', group), STORED_GROUP .. group) > 0
    or redis.call('HEXISTS', DELETED, redis.sha1hex('group:' .. group)) == 1 -- its attempts would be dropped
end

local function num_asked()
  local num = 0
  for at = 2, #ARGV, FIELDS do
    if not is_known(ARGV[at]) then
      num = num + ARGV[at + 5]
    end
  end
  return num
end

local function add(group, run, task_id, task_type, split, size, needs, priority, task)
  if is_known(group) then
    return 0
  end
  redis.call('HSET', key('g', group), 'state', 'open', 'run', run, 'task_id', task_id, 'task_type', task_type,
    'split', split, 'group_size', size, 'open', size, 'task', task, 'queued_at', NOW)
  for member = 0, size - 1 do
    local seq = redis.call('INCR', key('seq'))
    local rollout = group .. '.' .. member
    redis.call('HSET', key('r', rollout), 'group', group, 'member', member, 'ready', run .. '/' .. needs,
      'score', seq - priority * PRIORITY_STEP, 'attempts', 0, 'failures', 0)
    enqueue(rollout)
    if member == 0 then
      redis.call('ZADD', key('open'), seq, group)
    end
  end
  return 1
end

local queued, asked = num_queued(), num_asked()
if asked > 0 and queued + asked > tonumber(ARGV[1]) then
  return { -1, queued }
end
local added = {}
for at = 2, #ARGV, FIELDS do
  added[#added + 1] = add(unpack(ARGV, at, at + FIELDS - 1))
end
wake()
return added
