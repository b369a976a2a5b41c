-- Ends a script that decides, as long as the index may lack what this server forgot; scripts.py then restores it. Comes
-- after prelude.lua, before everything that writes. See infra/redis/lua/greet.lua.

local SERVER_CHANGE, SERVER_RESTORED = unpack(redis.call('HMGET', key('server'), 'change', 'restored'))
if not SERVER_CHANGE or SERVER_CHANGE ~= SERVER_RESTORED then
  return redis.error_reply('RESTORING the index may lack what this server has forgotten')
end
