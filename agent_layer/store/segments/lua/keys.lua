-- Names of keys, and which owners are deleted. Comes before every script that changes the index or counts blobs.
-- KEYS[1]: prefix of the namespace.
local prefix = KEYS[1]

local function key(...)
  return table.concat({prefix, ...}, ':')
end

local function is_dead(owner)
  return redis.call('HEXISTS', key('dead'), redis.sha1hex(owner)) == 1
end

