-- Mark segments as committed. One that was merged away is queued for removal instead: its object may be stored again.
-- Preludes: keys.lua, merged.lua.
-- ARGV: the server's change when their commit began (infra/redis/lua/greet.lua), then name, size, name, size, ...
-- Returns 1; or 0, and marks none, where the server changed meanwhile: it may have forgotten their rows.
if (redis.call('HGET', key('q', 'server'), 'change') or '') ~= ARGV[1] then
  return 0
end

local function is_committed(name)
  return redis.call('HEXISTS', key('segments'), name) == 1
end

for i = 2, #ARGV, 2 do
  if was_merged(ARGV[i], is_committed) then
    redis.call('SADD', key('rewrite'), ARGV[i])
  else
    redis.call('HSET', key('segments'), ARGV[i], ARGV[i + 1])
  end
end
return 1
