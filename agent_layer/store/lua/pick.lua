-- Those of the rows KEYS that meet the conditions ARGV (see match.lua), as positions from 1.
local matches = matcher(1)
local matching = {}
for position, row in ipairs(KEYS) do
  if matches(row) then matching[#matching + 1] = position end
end
return matching
