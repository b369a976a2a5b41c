-- Queue the rollouts of groups that are not known yet.
--
-- ARGV: max_queued, then per group: group_id run task_id task_type split group_size launched partial needs priority
-- from_policy expected_ms task; from_policy and expected_ms may be ''.
-- Returns {per group 1 (queued) or 0 (known before), number of groups that reap.lua has to go on with}, or
-- {{-1, num_queued}, 0} when the queue is too full for all of them.

local FIELDS = 13
local LEAD = 256 -- places that a rollout gains by being expected to take twice as long; at most 16 times that
local MAX_DOUBLINGS = 16

local function num_queued()
  return redis.call('ZCARD', key('delayed')) + (redis.call('GET', key('num_waiting')) or 0)
    + (redis.call('GET', key('num_unfilled')) or 0)
end

local function is_known(group)
  return redis.call('EXISTS', key('g', group), STORED_GROUP .. group) > 0
    or redis.call('HEXISTS', DELETED, redis.sha1hex('group:' .. group)) == 1 -- its attempts would be dropped
end

local function num_requested()
  local num = 0
  for at = 2, #ARGV, FIELDS do
    if not is_known(ARGV[at]) then
      num = num + ARGV[at + 6]
    end
  end
  return num
end

-- Long rollouts begin first, so that they do not hold up the end of a run. A duration that is neither declared nor
-- measured counts as one second.
local function find_lead(run, task_id, expected_ms)
  local ms = tonumber(expected_ms) or tonumber(redis.call('HGET', key('took', run), task_id) or nil) or 1000
  local doublings = math.log(math.max(ms, 1) / 1000) / math.log(2)
  return math.floor(LEAD * math.max(0, math.min(MAX_DOUBLINGS, doublings)))
end

local function add(group, run, task_id, task_type, split, size, launched, partial, needs, priority, from_policy, expected, task)
  if is_known(group) then
    return 0
  end
  local ready = table.concat({ run, priority, from_policy, needs }, '/')
  redis.call('HSET', key('g', group), 'state', 'open', 'run', run, 'task_id', task_id, 'task_type', task_type,
    'split', split, 'group_size', size, 'partial', partial, 'ready', ready, 'task', task, 'queued_at', AT)
  local seq, lead = redis.call('INCRBY', key('seq'), launched) - launched + 1, find_lead(run, task_id, expected)
  redis.call('ZADD', key('open'), seq, group)
  launch(read_group(group), tonumber(launched), seq - lead, 1)
  redis.call('HSETNX', key('book', run), 'weight', 1)
  redis.call('SADD', key('runs'), run)
  return 1
end

local queued, requested = num_queued(), num_requested()
if requested > 0 and queued + requested > tonumber(ARGV[1]) then
  return { { -1, queued }, 0 }
end
local added = {}
for at = 2, #ARGV, FIELDS do
  added[#added + 1] = add(unpack(ARGV, at, at + FIELDS - 1))
end
write_groups()
wake()
return { added, redis.call('SCARD', key('unfinished')) }
