-- Names of keys, and which owners are deleted. Comes before every script that changes the index or counts blobs.
-- KEYS[1]: prefix of the namespace.
local prefix = KEYS[1]

local function key(...)
  return table.concat({prefix, ...}, ':')
end

local KINDS = {trajectory = true, group = true, policy = true, batch = true}

-- Kind and name of an owner: what begins with no kind is a trajectory. schema/ids.py has the same rule.
local function split_owner(owner)
  local kind, name = owner:match('^(%l+):(.*)')
  if kind and KINDS[kind] then return kind, name end
  return 'trajectory', owner
end

local function owner_text(kind, name)
  if kind == 'trajectory' and not KINDS[name:match('^(%l+):') or ''] then return name end
  return kind .. ':' .. name
end

local function is_dead(kind, name)
  return redis.call('HEXISTS', key('dead'), redis.sha1hex(owner_text(kind, name))) == 1
end

