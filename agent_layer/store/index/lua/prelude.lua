-- How the index holds rows. Comes after keys.lua, before every script that writes the index or audits it.
--
-- Each trajectory has an ordinal; 2048 ordinals in a row are a block. A block has a bitmap for each value that one of
-- its members has ('run=r', 'tool=search'), a column of float64s for each number, and hashes from position to id.
-- 'v:<name>' names the blocks in which a value occurs; 'zones' has the least and greatest number of each column of a
-- block (its zone). A zone never narrows while its block exists: it only rules blocks out.
-- Constants before it, from scripts.py: COLUMNS, SINGLE (field → bitmap of its value), LISTS (field with a JSON list →
-- bitmap of each value), COUNTED (bitmaps whose values 'values:<name>' lists), REST (bitmap of a bounded field → bitmap of
-- the values that have none of their own), MAX_LISTED (values that have one).
local BLOCK, IDS_TOGETHER, MAX_VALUE_LENGTH = 2048, 128, 64 -- hashes this small are kept packed
local COLUMN_AT = {}
for at, column in ipairs(COLUMNS) do COLUMN_AT[column] = at end
local ENDS = '<' .. ('dd'):rep(#COLUMNS)
local NOT_KNOWN = 0 / 0
local EMPTY_COLUMN = struct.pack('<d', NOT_KNOWN):rep(BLOCK)

local FILED = {'labels', 'given_labels', 'ordinal', 'num_calls'}
for field in pairs(SINGLE) do FILED[#FILED + 1] = field end
for field in pairs(LISTS) do FILED[#FILED + 1] = field end
for _, column in ipairs(COLUMNS) do FILED[#FILED + 1] = column end

local function read_filed(row)
  local filed = {}
  for i, value in ipairs(redis.call('HMGET', row, unpack(FILED))) do filed[FILED[i]] = value or nil end
  return filed
end

-- The labels of its task, superseded or withdrawn by those given later: name → {rank, value or nothing}.
local function read_labels(filed)
  local labels = filed.labels and cjson.decode(filed.labels) or {}
  for name, given in pairs(filed.given_labels and cjson.decode(filed.given_labels) or {}) do labels[name] = given[2] end
  return labels
end

-- Name → {field, value} of all bitmaps that a row belongs in. Long values are named by their hash.
local function list_names(filed)
  local names = {all = {'all'}}
  local function add(field, value)
    names[field .. '=' .. (#value > MAX_VALUE_LENGTH and redis.sha1hex(value) or value)] = {field, value}
  end
  for field, name in pairs(SINGLE) do if filed[field] then add(name, filed[field]) end end
  for field, name in pairs(LISTS) do
    for _, value in ipairs(filed[field] and cjson.decode(filed[field]) or {}) do add(name, value) end
  end
  for label, value in pairs(read_labels(filed)) do
    add('label', label:gsub('[%z=]', '\0%0') .. '=' .. value) -- so that its name ends at the first plain '='
  end
  return names
end

local is_repairing = false -- whether to write everything, even what seems to be there already
local occurring = {} -- bitmaps that this script has found or made non-empty
local begins = {} -- prefixes of the keys of a block

local function in_block(block, name)
  local begin = begins[block]
  if not begin then
    begin = key('b', block, '')
    begins[block] = begin
  end
  return begin .. name
end

-- Whether a value has a bitmap of its own: agents may invent tools without end.
local function has_bitmap(field, value)
  if not REST[field] then return true end
  local values = key('values', field)
  return redis.call('SISMEMBER', values, value) == 1 or redis.call('SCARD', values) < MAX_LISTED
end

local function mark(block, at, name, what)
  if not has_bitmap(what[1], what[2]) then
    name = REST[what[1]]
    what = {name}
  end
  local bitmap = in_block(block, name)
  local is_known = redis.call('SETBIT', bitmap, at, 1) == 1 and not is_repairing
  if is_known or occurring[bitmap] then return end
  occurring[bitmap] = true
  redis.call('SETBIT', key('v', name), block, 1)
  if COUNTED[what[1]] then redis.call('SADD', key('values', what[1]), what[2]) end
end

local function unmark(block, at, name, what)
  local bitmap, blocks = in_block(block, name), key('v', name)
  redis.call('SETBIT', bitmap, at, 0)
  if redis.call('BITPOS', bitmap, 1) >= 0 then return end
  redis.call('DEL', bitmap)
  occurring[bitmap] = nil
  redis.call('SETBIT', blocks, block, 0)
  if redis.call('BITPOS', blocks, 1) >= 0 then return end
  redis.call('DEL', blocks)
  if COUNTED[what[1]] then redis.call('SREM', key('values', what[1]), what[2]) end
end

-- A reward lies in a bucket of 0.05, so that a narrow range of rewards is as quickly found as a value. filters.py has
-- the same.
local function find_bucket(reward)
  return tostring(math.max(-200, math.min(200, math.floor(reward * 20))))
end

local zones, widened = {}, {} -- ends of the columns of a block that this script has read; those that it has changed

local function read_ends(block)
  if not zones[block] then
    local stored, ends = redis.call('HGET', key('zones'), block), {}
    if stored then
      ends = {struct.unpack(ENDS, stored)}
    else -- a block begins with nothing known of anybody
      for i = 1, 2 * #COLUMNS, 2 do ends[i], ends[i + 1] = math.huge, -math.huge end
      for _, column in ipairs(COLUMNS) do redis.call('SETNX', in_block(block, column), EMPTY_COLUMN) end
      widened[block] = true
    end
    zones[block] = ends
  end
  return zones[block]
end

-- Write a number, or that it is not known (nil).
local function write(block, at, column, value)
  local ends, low, high = read_ends(block), 2 * COLUMN_AT[column] - 1, 2 * COLUMN_AT[column]
  redis.call('SETRANGE', in_block(block, column), 8 * at, struct.pack('<d', value or NOT_KNOWN))
  if value and (value < ends[low] or value > ends[high]) then
    ends[low], ends[high] = math.min(ends[low], value), math.max(ends[high], value)
    widened[block] = true
  end
end

-- What a script that writes numbers calls at its end.
local function keep_zones()
  for block in pairs(widened) do
    redis.call('HSET', key('zones'), block, struct.pack(ENDS, unpack(zones[block], 1, 2 * #COLUMNS)))
  end
end

local function write_reward(block, at, known, reward)
  local left, joined = known and find_bucket(known), reward and find_bucket(reward)
  if left and left ~= joined then unmark(block, at, 'bucket=' .. left, {'bucket', left}) end
  if joined then mark(block, at, 'bucket=' .. joined, {'bucket', joined}) end
  if joined and not left then mark(block, at, 'rewarded', {'rewarded'}) end
  if left and not joined then unmark(block, at, 'rewarded', {'rewarded'}) end
  write(block, at, 'reward', reward)
end

local function find_place(ordinal)
  return math.floor(ordinal / BLOCK), ordinal % BLOCK
end

-- The number of the next block, 'following' if possible. Once numbers reach twice those in use, the least free one is
-- taken again: 'v:<name>' has a bit for each, so no number may grow for ever.
local MIN_BLOCK_NUMBERS = 16
local function find_free_block(following)
  local num_in_use = redis.call('BITCOUNT', key('v', 'all'))
  local function is_free(block)
    return redis.call('GETBIT', key('v', 'all'), block) == 0 and redis.call('HEXISTS', key('zones'), block) == 0
  end
  if following < 2 * num_in_use + MIN_BLOCK_NUMBERS and is_free(following) then return following end
  local block = redis.call('BITPOS', key('v', 'all'), 0)
  while not is_free(block) do block = block + 1 end
  return block
end

-- The first of 'count' ordinals in a row, all of one block; 'ordinals' is the next one. With a step of 8 they begin at a
-- whole byte of its bitmaps, and no other call gets a place of their last byte.
local function issue_ordinals(count, step)
  local first = math.ceil((tonumber(redis.call('GET', key('ordinals'))) or 0) / step) * step
  local block, at = find_place(first)
  if at == 0 or at + count > BLOCK then first = find_free_block(at == 0 and block or block + 1) * BLOCK end
  redis.call('SET', key('ordinals'), first + math.ceil(count / step) * step)
  return first
end

local function ids_key(block, at)
  return in_block(block, 'ids:' .. math.floor(at / IDS_TOGETHER))
end

-- File a trajectory under what its row says now. 'before' is what it said last.
local function file(id, row, before)
  local after = read_filed(row)
  if not after.started_at then return after end
  local ordinal, is_whole = after.ordinal, is_repairing
  if not ordinal then
    ordinal, is_whole, before = issue_ordinals(1, 1), true, {}
    redis.call('HSET', row, 'ordinal', ordinal)
  end
  local block, at = find_place(ordinal)
  read_ends(block)
  if is_whole then redis.call('HSET', ids_key(block, at), at, id) end
  local left, joined = before.ordinal and list_names(before) or {}, list_names(after)
  for name, what in pairs(left) do if not joined[name] then unmark(block, at, name, what) end end
  for name, what in pairs(joined) do if is_whole or not left[name] then mark(block, at, name, what) end end
  for _, column in ipairs(COLUMNS) do
    if column == 'reward' then
      if is_whole then write_reward(block, at, nil, tonumber(after.reward)) end -- else rewards.lua does
    elseif is_whole or before[column] ~= after[column] then
      write(block, at, column, tonumber(after[column]))
    end
  end
  return after
end

-- Take a trajectory out of everything that it is filed under.
local function unfile(row)
  local ordinal = redis.call('HGET', row, 'ordinal')
  if not ordinal then return end
  local block, at = find_place(ordinal)
  local filed = read_filed(row)
  for name, what in pairs(list_names(filed)) do unmark(block, at, name, what) end
  for _, rest in pairs(REST) do unmark(block, at, rest, {rest}) end
  if filed.reward then write_reward(block, at, tonumber(filed.reward), nil) end
  redis.call('HDEL', ids_key(block, at), at)
  for _, column in ipairs(COLUMNS) do write(block, at, column, nil) end
  if redis.call('EXISTS', in_block(block, 'all')) == 1 then return end
  for _, column in ipairs(COLUMNS) do redis.call('DEL', in_block(block, column)) end
  redis.call('HDEL', key('zones'), block)
  zones[block], widened[block] = nil, nil
end

