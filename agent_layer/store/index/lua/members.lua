-- Ids and numbers of some members of blocks. Reads only.
-- Preludes: keys.lua.
-- ARGV[1]: msgpack of {columns, {block, places, block, places, ...}}.
-- Returns the numbers as one string of float64s, by member and column, then the id of each member; '' where it is gone.
local IDS_TOGETHER, MANY = 128, 16 -- from MANY places of a block on, its whole column is read
local NOT_KNOWN = struct.pack('<d', 0 / 0)
local columns, wanted = unpack(cmsgpack.unpack(ARGV[1]))
local numbers, answer = {}, {''}

local function make_reader(column_key, places)
  if #places < MANY then
    return function(at) return redis.call('GETRANGE', column_key, 8 * at, 8 * at + 7) end
  end
  local stored = redis.call('GET', column_key) or ''
  return function(at) return stored:sub(8 * at + 1, 8 * at + 8) end
end

for i = 1, #wanted, 2 do
  local begin, places, readers = key('b', wanted[i], ''), wanted[i + 1], {}
  for c, column in ipairs(columns) do readers[c] = make_reader(begin .. column, places) end
  for _, at in ipairs(places) do
    for c = 1, #columns do
      local number = readers[c](at)
      numbers[#numbers + 1] = #number == 8 and number or NOT_KNOWN
    end
    answer[#answer + 1] = redis.call('HGET', begin .. 'ids:' .. math.floor(at / IDS_TOGETHER), at) or ''
  end
end
answer[1] = table.concat(numbers)
return answer
