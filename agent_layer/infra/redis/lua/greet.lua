-- Note which server holds the namespace. Another one, a restarted one or an emptied one may lack its newest writes: the
-- queue decides nothing until the index is restored from the objects (store/maintenance/restore.py).
--
-- KEYS[1] prefix of the namespace. Its key q:server is a hash: run id of the server; changes counts how often it was
-- another one, changed_at when it last was (ms of its clock), restored the value of changes for which the index is whole.
-- ARGV: run id.
local function key(...)
  return table.concat({ KEYS[1], ... }, ':')
end

local server = key('q', 'server')
if redis.call('HGET', server, 'id') ~= ARGV[1] then
  local seconds, microseconds = unpack(redis.call('TIME'))
  redis.call('HSET', server, 'id', ARGV[1], 'changed_at', seconds * 1000 + math.floor(microseconds / 1000))
  redis.call('HINCRBY', server, 'changes', 1)
end
