-- Accepted attempts of groups that have no record yet: group:<group>/accepted is a hash, rollout → attempt. A queue
-- that forgot one finds it here (dispatcher/lua/forgotten.lua). Comes after keys.lua.

local KEEP_SECONDS = 30 * 86400 -- for those whose names look like a group's, and that no queue knows

local function accepted_key(group) -- no name has a '/'
  return key('group', group .. '/accepted')
end

local accepted = {} -- group → rollout → its first attempt that this script accepts

local function note_accepted(id) -- as schema.ids.make_trajectory_id
  local rollout, attempt = id:match('^(.*%.%d+)%-(%d+)$')
  local group = rollout and rollout:match('^(.*)%.')
  if not group then return end
  accepted[group] = accepted[group] or {}
  local known = accepted[group][rollout]
  if not known or tonumber(attempt) < tonumber(known) then accepted[group][rollout] = attempt end
end

-- What a script that notes accepted attempts calls at its end: the members of a group often come together.
local function keep_accepted()
  for group, attempts in pairs(accepted) do
    if redis.call('EXISTS', key('group', group)) == 0 then
      local rollouts, changes = {}, {}
      for rollout in pairs(attempts) do rollouts[#rollouts + 1] = rollout end
      local known = redis.call('HMGET', accepted_key(group), unpack(rollouts))
      for i, rollout in ipairs(rollouts) do
        if not known[i] or tonumber(attempts[rollout]) < tonumber(known[i]) then
          changes[#changes + 1], changes[#changes + 2] = rollout, attempts[rollout]
        end
      end
      if #changes > 0 then redis.call('HSET', accepted_key(group), unpack(changes)) end
      redis.call('EXPIRE', accepted_key(group), KEEP_SECONDS)
    end
  end
end
