-- References of trajectories to blobs. Comes after keys.lua.

-- The blobs of a committed segment are stored: a shipper with the same content need not store it again.
local function keep_blob(id, name)
  redis.call('SADD', key('blob', name), id)
  redis.call('HSET', key('t', id, 'blobs'), name, 1)
  local content_hash = name:match('^%x+')
  local current = redis.call('HGET', key('blobs'), content_hash)
  if not current or current:match('^%S+') == name then redis.call('HSET', key('blobs'), content_hash, name .. ' 1') end
end

-- Release a blob. A blob that no trajectory needs may be removed: see unneeded.lua.
local function release_blob(id, name)
  redis.call('SREM', key('blob', name), id)
  if redis.call('EXISTS', key('blob', name)) == 0 then redis.call('SADD', key('unneeded'), name) end
end

