-- Tell which blobs may be removed: those that nobody needs who lives. Stands behind blocks.lua.
-- ARGV: 1 to have them removed, 0 only to look; then names.
local is_looking, removable = ARGV[1] == '0', {}
if redis.call('EXISTS', key('reindexing')) == 1 then return removable end -- not all who need them are known

for i = 2, #ARGV do
  local name = ARGV[i]
  local is_needed = false
  for _, id in ipairs(redis.call('SMEMBERS', key('blob', name))) do
    if is_dead(id) then redis.call('SREM', key('blob', name), id) else is_needed = true end
  end
  if not is_needed then removable[#removable + 1] = name end
  if is_needed then
    redis.call('SREM', key('unneeded'), name)
  elseif not is_looking then
    redis.call('SADD', key('unneeded'), name)
    local content_hash = name:match('^%x+')
    local current = redis.call('HGET', key('blobs'), content_hash)
    if current and current:match('^%S+') == name then redis.call('HDEL', key('blobs'), content_hash) end
  end
end
return removable
