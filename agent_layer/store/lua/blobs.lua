-- Give each content that is to be stored a blob: the one that holds the same already, else the one named with it.
-- ARGV[1]: msgpack of a list of {trajectory, content hash, name of a new blob}. Stands behind blocks.lua.
-- Returns of each 'name 1' or, where the caller has to store it, 'name 0'. For the dead nothing is stored.
--
-- From here on the trajectory needs the blob, before anything is stored. A blob that unneeded.lua has given free is given
-- to nobody any more, so that it may be removed however slowly.
local given = {}
for i, one in ipairs(cmsgpack.unpack(ARGV[1])) do
  local id, content_hash, fresh = unpack(one)
  local current = redis.call('HGET', key('blobs'), content_hash)
  if is_dead(id) then
    current = fresh .. ' 1'
  else
    if not current then
      current = fresh .. ' 0'
      redis.call('HSET', key('blobs'), content_hash, current)
    end
    local name = current:match('^%S+')
    redis.call('SADD', key('blob', name), id)
    redis.call('HSETNX', key('t', id, 'blobs'), name, 0)
  end
  given[i] = current
end
return given
