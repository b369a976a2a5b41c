-- Assign each content a blob: the blob that holds the same content already, else the new name beside it.
-- Preludes: keys.lua.
-- ARGV[1]: msgpack of a list of {trajectory, content hash, name of a new blob}.
-- Returns for each 'name 1' or, if the caller has to store the blob, 'name 0'. A deleted trajectory stores nothing.
--
-- From here on the trajectory holds a reference to the blob, before the blob is stored. A blob that unneeded.lua has
-- released is never assigned again, so its removal may take any time.
local given = {}
for i, one in ipairs(cmsgpack.unpack(ARGV[1])) do
  local id, content_hash, fresh = unpack(one)
  local current = redis.call('HGET', key('blobs'), content_hash)
  if is_dead('trajectory', id) then
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
