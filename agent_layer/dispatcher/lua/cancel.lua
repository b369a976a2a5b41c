-- Cancel all rollouts of groups that are not final yet; their workers learn of it at once.
--
-- ARGV: group ids. Returns the number of rollouts that are cancelled, and of groups that reap.lua has to go on with.

local num = 0

for _, name in ipairs(ARGV) do
  local group = read_group(name)
  if group.state == 'open' then
    num = num + group.open
    begin_closing(group, 'cancelled')
  end
end
write_all({})
return { num, num_unfinished() }
