-- Blobs that may be removed, because no trajectory needs them except deleted ones.
-- Preludes: keys.lua.
-- ARGV: 1 to release them for removal, 0 to report only; then names. Returns the names that may be removed.
local is_looking, removable = ARGV[1] == '0', {}
if redis.call('EXISTS', key('reindexing')) == 1 then return removable end -- not all who need them are known

local function is_needed(name)
  while true do
    local id = redis.call('SRANDMEMBER', key('blob', name))
    if not id then return false end
    if not is_dead('trajectory', id) then return true end
    redis.call('SREM', key('blob', name), id) -- died before its shipper could tell
  end
end

-- From now on the same content gets a new blob.
local function strike_off(name)
  local content_hash = name:match('^%x+')
  local current = redis.call('HGET', key('blobs'), content_hash)
  if current and current:match('^%S+') == name then redis.call('HDEL', key('blobs'), content_hash) end
  redis.call('SADD', key('unneeded'), name) -- until its object is gone
end

for i = 2, #ARGV do
  local name = ARGV[i]
  if is_needed(name) then
    redis.call('SREM', key('unneeded'), name)
  else
    removable[#removable + 1] = name
    if not is_looking then strike_off(name) end
  end
end
return removable
