-- Merge what a segment says into the index. Every value is a set, a minimum, a maximum or the first by rank, so that
-- neither the order of merges nor merging again changes anything.
-- KEYS[1]: prefix of the namespace. ARGV[1]: msgpack of an IndexBatch, see summary.py.
local prefix = KEYS[1]
local batch = cmsgpack.unpack(ARGV[1])

local OPENING = {'rollout_id', 'attempt', 'run', 'task_id', 'task_type', 'split', 'group_id', 'worker', 'labels',
  'declared', 'started_at'}
local ENDING = {'status', 'cause', 'ended_at', 'calls_at_end'}
local FILED = {'started_at', 'accepted', 'run', 'task_id', 'task_type', 'split', 'status'}
local BY_START = {run = 'run', task_id = 'task', task_type = 'type', split = 'split', status = 'status'}
local NUM_EVENTS_KEPT = 10000

local function key(...)
  return table.concat({prefix, ...}, ':')
end

local function announce(...)
  redis.call('XADD', key('events'), 'MAXLEN', '~', NUM_EVENTS_KEPT, '*', ...)
end

-- Of several blocks of the same fields the one with the lowest rank stands, as a whole.
local function keep_first(row, rank_field, block, fields)
  local rank = redis.call('HGET', row, rank_field)
  if rank and rank <= block.rank then return end
  redis.call('HDEL', row, unpack(fields))
  redis.call('HSET', row, rank_field, block.rank)
  for field, value in pairs(block.fields) do redis.call('HSET', row, field, value) end
end

-- Of a call ever more is told (1 started, 2 ended, 3 both), and its choices never get fewer. Stored as 'told choices'.
local function merge_calls(calls_key, row, calls)
  for call, seen in pairs(calls) do
    local told, num_choices = unpack(seen)
    local known = redis.call('HGET', calls_key, call)
    if known then
      local known_told, known_choices = known:match('(%d+) (%d+)')
      told = bit.bor(told, tonumber(known_told))
      num_choices = math.max(num_choices, tonumber(known_choices))
    end
    redis.call('HSET', calls_key, call, told .. ' ' .. num_choices)
  end
  local num_steps = 0
  for _, value in ipairs(redis.call('HVALS', calls_key)) do
    num_steps = num_steps + tonumber(value:match(' (%d+)'))
  end
  redis.call('HSET', row, 'num_calls', redis.call('HLEN', calls_key), 'num_steps', num_steps)
end

local function merge_agents(row, agents)
  local known, names = {}, {}
  for _, name in ipairs(cjson.decode(redis.call('HGET', row, 'agents') or '[]')) do known[name] = true end
  for _, name in ipairs(agents) do known[name] = true end
  for name in pairs(known) do names[#names + 1] = name end
  table.sort(names)
  redis.call('HSET', row, 'agents', cjson.encode(names))
end

local function merge_policy(id, row, field, version, choose)
  local known = redis.call('HGET', row, field)
  local chosen = known and choose(tonumber(known), version) or version
  redis.call('HSET', row, field, chosen)
  redis.call('ZADD', key('ix', field), chosen, id)
end

local function read_filed(row)
  local filed = {}
  for i, value in ipairs(redis.call('HMGET', row, unpack(FILED))) do filed[FILED[i]] = value end
  return filed
end

-- Move a trajectory from the sorted sets that its row belonged to, to those that it belongs to now; says whether its
-- status or its acceptance has changed.
local function file(id, before, after)
  local same = true
  for _, field in ipairs(FILED) do same = same and before[field] == after[field] end
  if same or not after.started_at then return false end
  redis.call('ZADD', key('ix', 'all'), after.started_at, id)
  if after.accepted then redis.call('ZADD', key('ix', 'accepted'), after.started_at, id) end
  for field, index in pairs(BY_START) do
    local left, joined = before[field], after[field]
    if left and left ~= joined then redis.call('ZREM', key('ix', index, left), id) end
    if joined then redis.call('ZADD', key('ix', index, joined), after.started_at, id) end
  end
  redis.call('SADD', key('runs'), after.run)
  return before.status ~= after.status or before.accepted ~= after.accepted
end

local function merge_trajectory(one)
  local id, row = one.trajectory_id, key('t', one.trajectory_id)
  local before = read_filed(row)
  local is_more = redis.call('HSET', key('t', id, 'chunks'), one.segment, one.place) == 1
  if one.opening then keep_first(row, 'opened', one.opening, OPENING) end
  if one.ending then keep_first(row, 'ended', one.ending, ENDING) end
  if one.is_started then redis.call('HSETNX', row, 'status', 'running') end
  if one.is_accepted then redis.call('HSET', row, 'accepted', 1) end
  if next(one.calls) then merge_calls(key('t', id, 'calls'), row, one.calls) end
  if next(one.agents) then merge_agents(row, one.agents) end
  if one.policy_min then merge_policy(id, row, 'policy_min', one.policy_min, math.min) end
  if one.policy_max then merge_policy(id, row, 'policy_max', one.policy_max, math.max) end
  for reward_id, reward in pairs(one.rewards) do
    redis.call('HSETNX', key('t', id, 'rewards'), reward_id, reward)
  end
  local after = read_filed(row)
  local has_ended = redis.call('HEXISTS', row, 'ended') == 1
  if file(id, before, after) then
    announce('kind', 'trajectory', 'trajectory_id', id, 'status', after.status or '')
  elseif is_more and has_ended then -- a late reward, or steps of another log
    announce('kind', 'addition', 'trajectory_id', id)
  end
end

for _, one in ipairs(batch.trajectories) do merge_trajectory(one) end
for _, policy in ipairs(batch.policies) do
  redis.call('SADD', key('runs'), policy.run)
  redis.call('HSETNX', key('policies', policy.run), policy.number, policy.record)
end
for _, group in ipairs(batch.groups) do
  if redis.call('SETNX', key('group', group.group_id), group.record) == 1 then
    redis.call('ZADD', key('groups', group.run), group.closed_at, group.group_id)
    announce('kind', 'group', 'group_id', group.group_id, 'run', group.run)
  end
end
