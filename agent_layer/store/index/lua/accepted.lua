-- Accepted attempts of groups that have no record yet: group:<group>/accepted is a hash, rollout → attempt. A queue
-- that forgot one finds it here (dispatcher/lua/forgotten.lua). Comes after keys.lua.

local KEEP_SECONDS = 30 * 86400 -- for those whose names look like a group's, and that no queue knows

local function accepted_key(group) -- no name has a '/'
  return key('group', group .. '/accepted')
end

local function note_accepted(id) -- as schema.ids.make_trajectory_id
  local rollout, attempt = id:match('^(.*%.%d+)%-(%d+)$')
  local group = rollout and rollout:match('^(.*)%.')
  if not group or redis.call('EXISTS', key('group', group)) == 1 then return end
  local known = tonumber(redis.call('HGET', accepted_key(group), rollout) or nil)
  if not known or tonumber(attempt) < known then redis.call('HSET', accepted_key(group), rollout, attempt) end
  redis.call('EXPIRE', accepted_key(group), KEEP_SECONDS)
end
