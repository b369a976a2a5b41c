-- Let trajectories and groups be dead: nothing of them stays in the index, and nothing that is merged brings them back.
-- Stands behind blocks.lua, events.lua and death.lua.
-- ARGV: when, then owners (a trajectory's id, or 'group:' and a group's id).
for i = 2, #ARGV do
  local owner = ARGV[i]
  redis.call('HSETNX', key('dead'), redis.sha1hex(owner), ARGV[1])
  local group = owner:match('^group:(.*)')
  if group then forget_group(group) else forget_trajectory(owner) end
end
keep_zones()
