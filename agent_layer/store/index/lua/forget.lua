-- Delete trajectories and groups: the index drops them, and no later commit brings them back.
-- Preludes: keys.lua, prelude.lua, events.lua, blob_refs.lua, death.lua.
-- ARGV: time of the deletion, then owners (trajectories and groups, see keys.lua).
for i = 2, #ARGV do
  local owner = ARGV[i]
  redis.call('HSETNX', key('dead'), redis.sha1hex(owner), ARGV[1])
  local kind, name = split_owner(owner)
  if kind == 'group' then forget_group(name) else forget_trajectory(name) end
end
keep_zones()
