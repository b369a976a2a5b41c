-- What stands before walk.lua and pick.lua: a test of rows. Conditions stand in ARGV, from position 'first' to the end,
-- as field, test, value; field, test, value; ...
-- Tests: is, isnt (text), least, most (inclusive; an absent field never meets them), has (an item of a JSON list).
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

local function matcher(first)
  local conditions = {}
  for i = first, #ARGV, 3 do
    local is_number = ARGV[i + 1] == 'least' or ARGV[i + 1] == 'most'
    conditions[#conditions + 1] = { ARGV[i], tests[ARGV[i + 1]], is_number and tonumber(ARGV[i + 2]) or ARGV[i + 2] }
  end
  return function(row)
    for _, condition in ipairs(conditions) do
      local field, test, wanted = unpack(condition)
      if not test(redis.call('HGET', row, field), wanted) then return false end
    end
    return true
  end
end

