-- Note which server holds the namespace. Another one, a restarted one or an emptied one may lack its newest writes: the
-- queue decides nothing until the index is restored from the objects (store/maintenance/restore.py).
--
-- KEYS[1] prefix of the namespace. Its key q:server is a hash: run id of the server; change names its last change;
-- restored is the change for which the index is whole; restarted is 1 where there was an earlier one.
-- ARGV: run id, a name that no change had: a counter that the server forgets would name two alike.
local function key(...)
  return table.concat({ KEYS[1], ... }, ':')
end

local server = key('q', 'server')
local id, change = unpack(redis.call('HMGET', server, 'id', 'change'))
if id ~= ARGV[1] or not change then
  redis.call('HSET', server, 'id', ARGV[1], 'change', ARGV[2])
end
