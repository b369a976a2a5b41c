-- Mark segments as committed. One that was merged away is queued for removal instead: its object may be stored again.
-- Preludes: keys.lua, merged.lua.
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
