-- Merge the summaries of segments into the index. Every value is a set, a minimum, a maximum or the first by rank, so
-- neither the order of commits nor a repeated commit changes the result, and a deleted owner stays deleted. (Ordinals
-- depend on the order of commits: no answer shows them.)
-- Preludes: keys.lua, prelude.lua, events.lua, reward_basis.lua, blob_refs.lua, death.lua, merged.lua, accepted.lua.
-- Constants before it, from scripts.py: OPENING and ENDING, the fields of these two blocks.
-- ARGV[1]: msgpack of entries by kind, see _batches in commit.py.
-- Returns the basis (see reward_basis.lua) of each trajectory whose reward may have changed, but for new ones: their
-- reward follows from their entry alone, and comes with it.
local batch = cmsgpack.unpack(ARGV[1])
is_repairing = batch.again

local changes = {} -- fields and values of the row that is merged now: one command writes all of them

local function set(field, value)
  changes[#changes + 1], changes[#changes + 2] = field, value
end

-- Of several blocks of the same fields the one with the lowest rank stands, as a whole.
local function keep_first(row, rank_field, block, fields)
  local rank = redis.call('HGET', row, rank_field)
  if rank and rank <= block.rank then return end
  if rank then redis.call('HDEL', row, unpack(fields)) end
  set(rank_field, block.rank)
  for field, value in pairs(block.fields) do set(field, value) end
end

-- What is known of a call only grows (1 started, 2 ended, 3 both), as does its number of choices.
-- Stored as 'known choices'.
local function merge_calls(calls_key, calls, before)
  local ids, merged_calls = {}, {}
  local num_calls, num_steps = tonumber(before.num_calls), tonumber(before.num_steps)
  if batch.again or not num_calls then
    num_calls, num_steps = 0, 0
    for _, value in ipairs(redis.call('HVALS', calls_key)) do
      num_calls, num_steps = num_calls + 1, num_steps + value:match(' (%d+)')
    end
  end
  for call in pairs(calls) do ids[#ids + 1] = call end
  local known = num_calls > 0 and redis.call('HMGET', calls_key, unpack(ids)) or {}
  for i, call in ipairs(ids) do
    local bits, num_choices = unpack(calls[call])
    if known[i] then
      local known_bits, known_choices = known[i]:match('(%d+) (%d+)')
      bits, num_choices = bit.bor(bits, tonumber(known_bits)), math.max(num_choices, tonumber(known_choices))
      num_steps = num_steps - known_choices
    else
      num_calls = num_calls + 1
    end
    num_steps = num_steps + num_choices
    merged_calls[#merged_calls + 1], merged_calls[#merged_calls + 2] = call, bits .. ' ' .. num_choices
  end
  redis.call('HSET', calls_key, unpack(merged_calls))
  set('num_calls', num_calls)
  set('num_steps', num_steps)
end

local function merge_names(field, more, before)
  local known, names, stored = {}, {}, before[field]
  for _, name in ipairs(stored and cjson.decode(stored) or {}) do known[name] = true end
  for _, name in ipairs(more) do known[name] = true end
  for name in pairs(known) do names[#names + 1] = name end
  table.sort(names)
  set(field, cjson.encode(names))
end

-- Of several labels of one name the one with the highest rank stands; of equal ranks the greater value.
local function merge_labels(given, before)
  local stored, parts, names = before.given_labels, {}, {}
  local known = stored and cjson.decode(stored) or {}
  for name, incoming in pairs(given) do
    local held = known[name]
    if not held or held[1] < incoming[1] or (held[1] == incoming[1] and (held[2] or '') < (incoming[2] or '')) then
      known[name] = incoming
    end
  end
  for name in pairs(known) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do parts[i] = cjson.encode(name) .. ':' .. cjson.encode(known[name]) end
  set('given_labels', '{' .. table.concat(parts, ',') .. '}')
end

local function merge_policy(field, version, choose, before)
  local known = before[field]
  set(field, known and choose(tonumber(known), version) or version)
end

-- 'before' has what the row says of all fields that it is filed under.
local function merge_row(row, incoming, before)
  changes = {}
  if incoming.opening then keep_first(row, 'opened', incoming.opening, OPENING) end
  if incoming.ending then keep_first(row, 'ended', incoming.ending, ENDING) end
  if incoming.is_accepted then set('accepted', 1) end
  if incoming.calls then merge_calls(row .. ':calls', incoming.calls, before) end
  for _, field in ipairs({'agents', 'tools', 'findings', 'engines'}) do
    if incoming[field] then merge_names(field, incoming[field], before) end
  end
  if incoming.given_labels then merge_labels(incoming.given_labels, before) end
  if incoming.policy_min then merge_policy('policy_min', incoming.policy_min, math.min, before) end
  if incoming.policy_max then merge_policy('policy_max', incoming.policy_max, math.max, before) end
  if #changes > 0 then redis.call('HSET', row, unpack(changes)) end
  if incoming.is_started then redis.call('HSETNX', row, 'status', 'running') end
end

local is_merged = {}
for _, name in ipairs(batch.merged) do is_merged[name] = true end

-- Record the location of the bytes, unless their segment was merged into one that the row already names.
-- Returns whether more is stored than before.
local function merge_place(chunks, segment, place)
  local function is_here(name) return redis.call('HEXISTS', chunks, name) == 1 end
  if was_merged(segment, is_here) then
    redis.call('SADD', key('rewrite'), segment)
    return false
  end
  local is_new = redis.call('HSET', chunks, segment, place) == 1
  if not is_merged[segment] then return is_new end
  for _, name in ipairs(redis.call('HKEYS', chunks)) do
    if was_merged(name, is_here) then redis.call('HDEL', chunks, name) end
  end
  return false
end

-- The same for a list of trajectories: a group, or a step of training. One with deleted members is queued
-- for a rewrite.
local function merge_listing_place(hash, id, segment, members)
  for _, member in ipairs(members) do
    if is_dead('trajectory', member) then redis.call('SADD', key('rewrite'), segment) end
  end
  local held, names = {[segment] = true}, {}
  for name in (redis.call('HGET', hash, id) or ''):gmatch('%S+') do held[name] = true end
  for name in pairs(held) do
    if was_merged(name, function(other) return held[other] end) then
      redis.call('SADD', key('rewrite'), name)
    else
      names[#names + 1] = name
    end
  end
  table.sort(names)
  redis.call('HSET', hash, id, table.concat(names, ' '))
end

-- Rewards of steps and agents are kept apart: they decide nothing, unless they supersede a reward of the rollout.
-- Returns whether one of them may.
local function merge_part_rewards(row, rewards)
  local is_judged = false
  for _, one in ipairs(rewards) do
    local id, superseded, reward = unpack(one)
    local counts = superseded ~= '' and redis.call('HEXISTS', row .. ':part-rewards', superseded) == 0
    redis.call('HSETNX', row .. (counts and ':rewards' or ':part-rewards'), id, reward)
    is_judged = is_judged or counts
  end
  return is_judged
end

local bases, growing = {}, {}
local function merge_trajectory(one)
  local incoming = one.summary
  local id = incoming.trajectory_id
  local row = key('t', id)
  if is_dead('trajectory', id) then
    redis.call('SADD', key('rewrite'), one.segment)
    for _, name in ipairs(incoming.blobs or {}) do release_blob(id, name) end
    forget_trajectory(id) -- the process that deleted it may have died half-way
    return
  end
  local before = read_filed(row)
  local is_new = not before.started_at and redis.call('EXISTS', row, row .. ':rewards') == 0
  local is_more = merge_place(row .. ':chunks', one.segment, one.place)
  merge_row(row, incoming, before)
  if incoming.is_accepted then note_accepted(id) end
  for _, name in ipairs(incoming.blobs or {}) do keep_blob(id, name) end
  for reward_id, reward in pairs(one.rewards) do
    redis.call('HSETNX', row .. ':rewards', reward_id, reward)
  end
  local is_judged = merge_part_rewards(row, one.part_rewards) or one.is_judged
  for _, topic in ipairs(one.topics) do redis.call('ZADD', row .. ':topics', 0, topic) end
  if is_new and one.reward ~= '' then redis.call('HSET', row, 'reward', one.reward) end
  local after = file(id, row, before)
  if after.run then redis.call('SADD', key('runs'), after.run) end
  if after.started_at and (before.status ~= after.status or before.accepted ~= after.accepted) then
    announce('kind', 'trajectory', 'trajectory_id', id, 'status', after.status or '', 'run', after.run or '')
  elseif is_more and redis.call('HEXISTS', row, 'ended') == 1 then -- a late reward, or steps of another log
    announce('kind', 'addition', 'trajectory_id', id, 'run', after.run or '')
  elseif is_more then
    growing[#growing + 1] = {id, after.run or ''}
  end
  if is_judged and not is_new then bases[#bases + 1] = read_basis(id) end
end

-- Offer a group to consumers whose position is already behind it; see consumers/lua/prelude.lua.
local function offer_late(group)
  local feeds = redis.call('HGETALL', key('feeds', group.run))
  for i = 1, #feeds, 2 do
    local feed, closed_at = feeds[i], feeds[i + 1]:match('^%S+')
    local is_acked = redis.call('SISMEMBER', key('acked', group.run, feed:match('^(.*):')), group.group_id) == 1
    if tonumber(group.closed_at) <= tonumber(closed_at) and not is_acked then
      redis.call('ZADD', key('claims', group.run, feed, 'waiting'), group.closed_at, group.group_id)
    end
  end
end

for _, one in ipairs(batch.trajectories) do merge_trajectory(one) end
keep_accepted() -- before the records of groups, which end it
for _, policy in ipairs(batch.policies) do
  redis.call('SADD', key('runs'), policy.run)
  if redis.call('HSETNX', key('policies', policy.run), policy.number, policy.record) == 1 then
    announce('kind', 'policy', 'run', policy.run)
  end
end
for _, trained in ipairs(batch.trained) do
  local batches = key('batches', trained.run)
  local known = redis.call('HGET', batches, trained.batch_id)
  if not known or #trained.record < #known then -- the one without rollouts that were deleted
    redis.call('HSET', batches, trained.batch_id, trained.record)
    announce('kind', 'update', 'step', trained.step, 'run', trained.run)
  end
  merge_listing_place(key('batch-segments'), trained.run .. ':' .. trained.step, trained.segment, trained.members)
end
for _, group in ipairs(batch.groups) do
  redis.call('SADD', key('runs'), group.run)
  if is_dead('group', group.group_id) then
    redis.call('SADD', key('rewrite'), group.segment)
    forget_group(group.group_id)
  else
    merge_listing_place(key('group-segments'), group.group_id, group.segment, group.members)
    local is_new = redis.call('SETNX', key('group', group.group_id), group.record) == 1
    redis.call('DEL', accepted_key(group.group_id))
    if is_new then announce('kind', 'group', 'group_id', group.group_id, 'run', group.run) end
    if not is_new and is_merged[group.segment] then -- without the members that were deleted
      redis.call('SET', key('group', group.group_id), group.record)
    end
    local is_back = redis.call('ZADD', key('groups', group.run), group.closed_at, group.group_id) == 1
    if is_new or is_back then offer_late(group) end
  end
end
announce_growth(growing)
keep_zones()
return bases
