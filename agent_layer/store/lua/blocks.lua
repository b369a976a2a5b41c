-- What stands before commit.lua, rewards.lua, forget.lua and audit.lua: how trajectories are filed.
--
-- Each trajectory has an ordinal; 2048 ordinals in a row are a block. A block has a bitmap for each value that one of
-- its members has ('run=r', 'tool=search'), a column of float64s for each number, and hashes that give back the ids.
-- 'v:<name>' says in which blocks a value occurs, 'zones' between which ends the numbers of a block lie. Ends never
-- come closer while the block lives: they only say where there is nothing to be found.
-- KEYS[1]: prefix of the namespace.
local prefix = KEYS[1]
local BLOCK, IDS_TOGETHER, LONGEST_VALUE = 2048, 128, 64 -- hashes this small are kept packed
local COLUMNS = {'started_at', 'reward', 'policy_min', 'policy_max', 'num_steps'}
local COLUMN_AT = {}
for at, column in ipairs(COLUMNS) do COLUMN_AT[column] = at end
local ENDS = '<' .. ('dd'):rep(#COLUMNS)
local NOT_KNOWN = 0 / 0

-- Field of a row → what its values are filed under.
local SINGLE = {run = 'run', split = 'split', task_id = 'task', task_type = 'type', status = 'status', cause = 'cause',
  accepted = 'accepted', input_hash = 'input', env = 'env', env_version = 'env_version'}
local LISTS = {agents = 'agent', tools = 'tool'}
local COUNTED = {run = true, split = true, type = true, status = true, cause = true, agent = true, tool = true,
  env = true, env_version = true}
local FILED = {'labels'}
for field in pairs(SINGLE) do FILED[#FILED + 1] = field end
for field in pairs(LISTS) do FILED[#FILED + 1] = field end
for _, column in ipairs(COLUMNS) do FILED[#FILED + 1] = column end

local function key(...)
  return table.concat({prefix, ...}, ':')
end

local function is_dead(owner)
  return redis.call('HEXISTS', key('dead'), redis.sha1hex(owner)) == 1
end

local function read_filed(row)
  local filed = {}
  for i, value in ipairs(redis.call('HMGET', row, unpack(FILED))) do filed[FILED[i]] = value or nil end
  return filed
end

-- Name → {field, value} of all bitmaps that a row belongs in. Long values are named by their hash.
local function names_of(filed)
  local names = {all = {'all'}}
  local function add(field, value)
    names[field .. '=' .. (#value > LONGEST_VALUE and redis.sha1hex(value) or value)] = {field, value}
  end
  for field, name in pairs(SINGLE) do if filed[field] then add(name, filed[field]) end end
  for field, name in pairs(LISTS) do
    for _, value in ipairs(cjson.decode(filed[field] or '[]')) do add(name, value) end
  end
  for label, value in pairs(cjson.decode(filed.labels or '{}')) do add('label', label .. '=' .. value) end
  return names
end

local function mark(block, at, name, what)
  if redis.call('SETBIT', key('b', block, name), at, 1) == 1 then return end
  if redis.call('SETBIT', key('v', name), block, 1) == 0 and COUNTED[what[1]] then
    redis.call('SADD', key('values', what[1]), what[2])
  end
end

local function unmark(block, at, name, what)
  local bitmap, blocks = key('b', block, name), key('v', name)
  redis.call('SETBIT', bitmap, at, 0)
  if redis.call('BITPOS', bitmap, 1) >= 0 then return end
  redis.call('DEL', bitmap)
  redis.call('SETBIT', blocks, block, 0)
  if redis.call('BITPOS', blocks, 1) >= 0 then return end
  redis.call('DEL', blocks)
  if COUNTED[what[1]] then redis.call('SREM', key('values', what[1]), what[2]) end
end

local function widen(block, column, value)
  local stored, ends = redis.call('HGET', key('zones'), block), {}
  if stored then
    ends = {struct.unpack(ENDS, stored)}
  else
    for i = 1, 2 * #COLUMNS, 2 do ends[i], ends[i + 1] = math.huge, -math.huge end
  end
  local low, high = 2 * COLUMN_AT[column] - 1, 2 * COLUMN_AT[column]
  if value >= ends[low] and value <= ends[high] then return end
  ends[low], ends[high] = math.min(ends[low], value), math.max(ends[high], value)
  redis.call('HSET', key('zones'), block, struct.pack(ENDS, unpack(ends, 1, 2 * #COLUMNS)))
end

-- Write a number, or that it is not known (nil).
local function write(block, at, column, value)
  redis.call('SETRANGE', key('b', block, column), 8 * at, struct.pack('<d', value or NOT_KNOWN))
  if value then widen(block, column, value) end
end

local function place_of(ordinal)
  return math.floor(ordinal / BLOCK), ordinal % BLOCK
end

local function ids_key(block, at)
  return key('b', block, 'ids', math.floor(at / IDS_TOGETHER))
end

-- File a trajectory under what its row says now. 'before' is what was filed last; without it all is written again.
local function file(id, row, before)
  local after = read_filed(row)
  if not after.started_at then return after end
  local ordinal = redis.call('HGET', row, 'ordinal')
  if not ordinal then
    ordinal, before = redis.call('INCR', key('ordinals')) - 1, nil
    redis.call('HSET', row, 'ordinal', ordinal)
  end
  local block, at = place_of(ordinal)
  if not before then redis.call('HSET', ids_key(block, at), at, id) end
  local left, joined = before and names_of(before) or {}, names_of(after)
  for name, what in pairs(left) do if not joined[name] then unmark(block, at, name, what) end end
  for name, what in pairs(joined) do if not left[name] then mark(block, at, name, what) end end
  for _, column in ipairs(COLUMNS) do
    if not before or before[column] ~= after[column] then write(block, at, column, tonumber(after[column])) end
  end
  return after
end

-- Take a trajectory out of everything that it is filed under.
local function unfile(row)
  local ordinal = redis.call('HGET', row, 'ordinal')
  if not ordinal then return end
  local block, at = place_of(ordinal)
  for name, what in pairs(names_of(read_filed(row))) do unmark(block, at, name, what) end
  redis.call('HDEL', ids_key(block, at), at)
  for _, column in ipairs(COLUMNS) do write(block, at, column, nil) end
  if redis.call('EXISTS', key('b', block, 'all')) == 1 then return end
  for _, column in ipairs(COLUMNS) do redis.call('DEL', key('b', block, column)) end
  redis.call('HDEL', key('zones'), block)
end

