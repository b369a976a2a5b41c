-- Delete trajectories and groups: the index drops them, and no later commit brings them back.
-- Preludes: keys.lua, prelude.lua, events.lua, death.lua.
-- ARGV: time of the deletion, then owners (a trajectory's id, or 'group:' and a group's id).
for i = 2, #ARGV do
  local owner = ARGV[i]
  redis.call('HSETNX', key('dead'), redis.sha1hex(owner), ARGV[1])
  local group = owner:match('^group:(.*)')
  if group then forget_group(group) else forget_trajectory(owner) end
end
keep_zones()
