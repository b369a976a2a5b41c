-- Let segments be committed; those that were merged away are not, but are to be looked at again: an object of theirs
-- may have been stored anew. Stands behind blocks.lua and merged.lua.
-- ARGV: name, size, name, size, ...
local function is_committed(name)
  return redis.call('HEXISTS', key('segments'), name) == 1
end

for i = 1, #ARGV, 2 do
  if was_merged(ARGV[i], is_committed) then
    redis.call('SADD', key('rewrite'), ARGV[i])
  else
    redis.call('HSET', key('segments'), ARGV[i], ARGV[i + 1])
  end
end
