-- Which of the hashes KEYS meet all conditions. ARGV: field, test, value; field, test, value; ...
-- Tests: is, isnt (text), least, most (inclusive; an absent field never meets them), has (an item of a JSON list).
-- Returns the positions in KEYS, from 1, of those that do.
local tests = {
  is = function(found, wanted) return found == wanted end,
  isnt = function(found, wanted) return found ~= wanted end,
  least = function(found, wanted) return found and tonumber(found) >= wanted end,
  most = function(found, wanted) return found and tonumber(found) <= wanted end,
  has = function(found, wanted)
    for _, item in ipairs(found and cjson.decode(found) or {}) do
      if item == wanted then return true end
    end
    return false
  end,
}

local conditions = {}
for i = 1, #ARGV, 3 do
  local is_number = ARGV[i + 1] == 'least' or ARGV[i + 1] == 'most'
  conditions[#conditions + 1] = { ARGV[i], tests[ARGV[i + 1]], is_number and tonumber(ARGV[i + 2]) or ARGV[i + 2] }
end

local function meets_all(key)
  for _, condition in ipairs(conditions) do
    local field, test, wanted = unpack(condition)
    if not test(redis.call('HGET', key, field), wanted) then return false end
  end
  return true
end

local matching = {}
for position, key in ipairs(KEYS) do
  if meets_all(key) then matching[#matching + 1] = position end
end
return matching
