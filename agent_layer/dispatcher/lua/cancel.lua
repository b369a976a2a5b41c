-- Cancel all rollouts of groups that are not final yet; their workers learn of it at once.
--
-- ARGV: group ids. Returns the number of rollouts that were cancelled, and of groups that were looked at: it stops
-- after some thousand rollouts, so that it does not hold up the server.

local ENOUGH = 2048
local num, num_groups = 0, 0

local function cancel_all(group, found)
  found.state = 'closing' -- nothing is launched for it any more
  for member = 0, found.launched - 1 do
    num = num + cancel(group .. '.' .. member, 'cancelled')
  end
end

for _, group in ipairs(ARGV) do
  local found = read_group(group)
  if found.state == 'open' then
    cancel_all(group, found)
  end
  num_groups = num_groups + 1
  if num >= ENOUGH then
    break
  end
end
write_all({})
return { num, num_groups }
