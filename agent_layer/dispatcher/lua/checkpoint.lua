-- Note from where an attempt may go on when its worker is gone or has paused it.
--
-- ARGV: rollout_id, token, name of the checkpoint.
-- Returns {'yes', the name that it replaces or '', '', 0} or {'no', status, worker, newest attempt}.

local r = key('r', ARGV[1])
local held, before, status, worker, attempts =
  unpack(redis.call('HMGET', r, 'token', 'checkpoint', 'status', 'worker', 'attempts'))
if not holds(ARGV[2], held) then
  return { 'no', status or 'unknown', worker or '', (attempts or 0) - 1 }
end
redis.call('HSET', r, 'checkpoint', ARGV[3])
return { 'yes', before ~= ARGV[3] and before or '', '', 0 }
