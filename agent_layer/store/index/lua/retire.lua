-- Remove superseded segments from the index of each owner that the new segment holds, too.
-- Preludes: keys.lua.
-- ARGV[1]: msgpack of a list of {owner, name of the new segment, names to remove}.
-- Returns the owners that the new segment does not hold: they still need the old segments.
local function drop_trajectory(id, new, olds)
  local chunks = key('t', id, 'chunks')
  if redis.call('HEXISTS', chunks, new) == 0 then return false end
  redis.call('HDEL', chunks, unpack(olds))
  return true
end

local LISTED_AT = {group = key('group-segments'), batch = key('batch-segments')}

local function drop_from_list(hash, id, new, olds)
  local names, is_there = {}, false
  local goes = {}
  for _, name in ipairs(olds) do goes[name] = true end
  for name in (redis.call('HGET', hash, id) or ''):gmatch('%S+') do
    is_there = is_there or name == new
    if not goes[name] then names[#names + 1] = name end
  end
  if is_there then redis.call('HSET', hash, id, table.concat(names, ' ')) end
  return is_there
end

local needed = {}
for _, one in ipairs(cmsgpack.unpack(ARGV[1])) do
  local owner, new, olds = unpack(one)
  local kind, name = split_owner(owner)
  local hash, is_free = LISTED_AT[kind], nil
  if hash then is_free = drop_from_list(hash, name, new, olds) else is_free = drop_trajectory(name, new, olds) end
  if not is_free and not is_dead(kind, name) then needed[#needed + 1] = owner end
end
return needed
