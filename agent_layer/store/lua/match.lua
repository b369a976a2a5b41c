-- Which of the hashes KEYS meet all conditions. ARGV: field, test, value; field, test, value; ...
-- Tests: is, isnt (text), least, most (inclusive; an absent field never meets them), has (an item of a JSON list).
-- Returns the positions in KEYS, from 1, of those that do.
local fields = {}
for i = 1, #ARGV, 3 do
  fields[#fields + 1] = ARGV[i]
end

local meets = {
  is = function(found, wanted) return found == wanted end,
  isnt = function(found, wanted) return found ~= wanted end,
  least = function(found, wanted) return found and tonumber(found) >= tonumber(wanted) end,
  most = function(found, wanted) return found and tonumber(found) <= tonumber(wanted) end,
  has = function(found, wanted)
    for _, item in ipairs(found and cjson.decode(found) or {}) do
      if item == wanted then return true end
    end
    return false
  end,
}

local matching = {}
for position, key in ipairs(KEYS) do
  local values = redis.call('HMGET', key, unpack(fields))
  local all = true
  for i = 1, #fields do
    all = all and meets[ARGV[3 * i - 1]](values[i], ARGV[3 * i])
  end
  if all then matching[#matching + 1] = position end
end
return matching
