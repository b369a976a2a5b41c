-- Enter whole trajectories that the index does not have, each merged by the caller from all that it read.
-- Preludes: keys.lua, prelude.lua, events.lua, blob_refs.lua, accepted.lua.
-- ARGV[1]: msgpack of a batch, see restore.py.
-- Returns the trajectories that the index has in part, that were deleted, or that have a segment that was replaced:
-- commit.lua merges these. If there is any, nothing is written.
local batch = cmsgpack.unpack(ARGV[1])

local has_dead = redis.call('EXISTS', key('dead')) == 1

local function is_refused(id)
  local row = key('t', id)
  return redis.call('EXISTS', row, row .. ':chunks', row .. ':calls', row .. ':rewards', row .. ':part-rewards') > 0
    or has_dead and is_dead('trajectory', id)
end

local function list_refused()
  local refused, is_replaced = {}, false
  for _, segment in ipairs(batch.segments) do
    is_replaced = is_replaced or redis.call('EXISTS', key('replaced', segment)) == 1
  end
  for _, one in ipairs(batch.trajectories) do
    if is_replaced or is_refused(one[1]) then refused[#refused + 1] = one[1] end
  end
  return refused
end

local function set_all(hash, values)
  if #values > 0 then redis.call('HSET', hash, unpack(values)) end
end

local function enter_all(first)
  local block, begin = find_place(first)
  local ids, growing = {}, {}
  for i, one in ipairs(batch.trajectories) do
    local id, run, status, fields, chunks, calls, rewards, part_rewards, topics, blobs, is_accepted = unpack(one)
    local row, at = key('t', id), begin + i - 1
    redis.call('HSET', row, 'ordinal', first + i - 1, unpack(fields))
    set_all(row .. ':chunks', chunks)
    set_all(row .. ':calls', calls)
    set_all(row .. ':rewards', rewards)
    set_all(row .. ':part-rewards', part_rewards)
    for _, topic in ipairs(topics) do redis.call('ZADD', row .. ':topics', 0, topic) end
    for _, name in ipairs(blobs) do keep_blob(id, name) end
    if is_accepted then note_accepted(id) end
    local hash = ids_key(block, at)
    ids[hash] = ids[hash] or {}
    table.insert(ids[hash], at)
    table.insert(ids[hash], id)
    if status then
      announce('kind', 'trajectory', 'trajectory_id', id, 'status', status, 'run', run)
    else
      growing[#growing + 1] = {id, run}
    end
  end
  for hash, values in pairs(ids) do set_all(hash, values) end
  announce_growth(growing)
end

local function mark_each(block, begin, name, what, bits)
  for i = 1, #bits do
    for b = 0, 7 do
      if bit.band(bits:byte(i), bit.rshift(128, b)) > 0 then mark(block, begin + 8 * (i - 1) + b, name, what) end
    end
  end
end

local function mark_all(first)
  local block, begin = find_place(first)
  for _, one in ipairs(batch.marks) do
    local name, field, value, offset, bits = unpack(one)
    if has_bitmap(field, value) then
      redis.call('SETRANGE', in_block(block, name), begin / 8 + offset, bits)
      redis.call('SETBIT', key('v', name), block, 1)
      if COUNTED[field] then redis.call('SADD', key('values', field), value) end
    else
      mark_each(block, begin + 8 * offset, name, {field, value}, bits)
    end
  end
  local ends = read_ends(block)
  for i, column in ipairs(COLUMNS) do
    local numbers, low, high = unpack(batch.columns[i])
    redis.call('SETRANGE', in_block(block, column), 8 * begin, numbers)
    ends[2 * i - 1], ends[2 * i] = math.min(ends[2 * i - 1], low), math.max(ends[2 * i], high)
  end
  widened[block] = true
  for _, run in ipairs(batch.runs) do redis.call('SADD', key('runs'), run) end
end

local refused = list_refused()
if #refused > 0 then return refused end
local first = issue_ordinals(#batch.trajectories, 8)
mark_all(first)
enter_all(first)
keep_accepted()
keep_zones()
return {}
