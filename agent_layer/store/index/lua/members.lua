-- Ids and numbers of some members of blocks. Reads only.
-- Preludes: keys.lua.
-- ARGV[1]: msgpack of {columns, {block, places, block, places, ...}}.
-- Returns the numbers as one string of float64s, by member and column, then the id of each member; '' where it is gone.
local IDS_TOGETHER = 128
local NOT_KNOWN = struct.pack('<d', 0 / 0)
local columns, wanted = unpack(cmsgpack.unpack(ARGV[1]))
local numbers, answer = {}, {''}

for i = 1, #wanted, 2 do
  local begin = key('b', wanted[i], '')
  for _, at in ipairs(wanted[i + 1]) do
    for _, column in ipairs(columns) do
      local number = redis.call('GETRANGE', begin .. column, 8 * at, 8 * at + 7)
      numbers[#numbers + 1] = #number == 8 and number or NOT_KNOWN
    end
    answer[#answer + 1] = redis.call('HGET', begin .. 'ids:' .. math.floor(at / IDS_TOGETHER), at) or ''
  end
end
answer[1] = table.concat(numbers)
return answer
