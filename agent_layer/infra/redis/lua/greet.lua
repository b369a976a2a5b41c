-- Note which server holds the namespace. Another one, a restarted one or an emptied one may lack its newest writes: the
-- queue decides nothing until the index is restored from the objects (store/maintenance/restore.py).
--
-- KEYS[1] hash: run id of the server; changes counts how often it was another one, changed_at when it last was (ms of
-- its clock), restored the value of changes up to which the index is restored.
-- ARGV: run id. Returns the value of changes.
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then
  local seconds, microseconds = unpack(redis.call('TIME'))
  redis.call('HSET', KEYS[1], 'id', ARGV[1], 'changed_at', seconds * 1000 + math.floor(microseconds / 1000))
  redis.call('HINCRBY', KEYS[1], 'changes', 1)
end
return tonumber(redis.call('HGET', KEYS[1], 'changes'))
