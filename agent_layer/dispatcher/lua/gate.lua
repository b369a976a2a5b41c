-- Ends a script that decides, as long as the index may lack what this server forgot; scripts.py then restores it. Comes
-- after prelude.lua, before everything that writes. See infra/redis/lua/greet.lua.

local SERVER_CHANGES, SERVER_RESTORED = unpack(redis.call('HMGET', key('server'), 'changes', 'restored'))
if not SERVER_CHANGES or SERVER_CHANGES ~= SERVER_RESTORED then
  return redis.error_reply('RESTORING the index may lack what this server has forgotten')
end
