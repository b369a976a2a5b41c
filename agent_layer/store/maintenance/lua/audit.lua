-- Trajectories whose bitmaps or columns contradict their rows. Reads only.
-- Preludes: keys.lua, prelude.lua.
-- ARGV: trajectory ids. Returns the ids of those.
local known = {} -- lookups that were already found correct

local function is_member(set, value)
  local lookup = set .. '\0' .. value
  known[lookup] = known[lookup] or redis.call('SISMEMBER', set, value) == 1
  return known[lookup]
end

local function occurs(block, name)
  local lookup = block .. '\0' .. name
  known[lookup] = known[lookup] or redis.call('GETBIT', key('v', name), block) == 1
  return known[lookup]
end

local function is_named(block, at, name, what)
  local rest = REST[what[1]]
  if rest and redis.call('GETBIT', in_block(block, rest), at) == 1 and occurs(block, rest) then return true end
  return redis.call('GETBIT', in_block(block, name), at) == 1 and occurs(block, name)
    and (not COUNTED[what[1]] or is_member(key('values', what[1]), what[2]))
end

local function has_names(block, at, filed)
  local names = list_names(filed)
  if filed.reward then
    local bucket = find_bucket(tonumber(filed.reward))
    names['bucket=' .. bucket], names.rewarded = {'bucket', bucket}, {'rewarded'}
  elseif redis.call('GETBIT', in_block(block, 'rewarded'), at) == 1 then
    return false
  end
  for name, what in pairs(names) do if not is_named(block, at, name, what) then return false end end
  return true
end

local function has_numbers(block, at, filed)
  local ends = redis.call('HGET', key('zones'), block)
  if not ends then return false end
  ends = {struct.unpack(ENDS, ends)}
  for i, column in ipairs(COLUMNS) do
    local stored = redis.call('GETRANGE', in_block(block, column), 8 * at, 8 * at + 7)
    if #stored ~= 8 then return false end
    local found, wanted = struct.unpack('<d', stored), tonumber(filed[column])
    if wanted and not (found == wanted and ends[2 * i - 1] <= wanted and wanted <= ends[2 * i]) then return false end
    if not wanted and found == found then return false end
  end
  return true
end

local function is_filed(id)
  local row = key('t', id)
  local filed = read_filed(row)
  if not filed.started_at then return not filed.ordinal end
  if not filed.ordinal then return false end
  if redis.call('HLEN', row .. ':calls') ~= (tonumber(filed.num_calls) or 0) then return false end
  if filed.run and not is_member(key('runs'), filed.run) then return false end
  local block, at = find_place(filed.ordinal)
  return redis.call('HGET', ids_key(block, at), at) == id and has_names(block, at, filed)
    and has_numbers(block, at, filed)
end

local misfiled = {}
for _, id in ipairs(ARGV) do
  if not is_filed(id) then misfiled[#misfiled + 1] = id end
end
return misfiled
