-- Change how a run is served.
--
-- ARGV: what, run, then its arguments:
--   pause   why, 1 when its leased rollouts are to pause too, 1 when it is only to be paused if it goes
--   resume  why it was paused, if it is to go only where that is still the reason; else ''
--   share   weight or '', quota or '' (0: none)
--   serve   the policy version that its engines serve
-- Returns 1, or 0 where nothing was changed.

local RUN = ARGV[2]
local book = key('book', RUN)

local paused = redis.call('HGET', key('paused_runs'), RUN)

if ARGV[1] == 'pause' then
  if paused and ARGV[5] == '1' then
    return 0
  end
  redis.call('HSET', key('paused_runs'), RUN, ARGV[3])
  if ARGV[4] == '1' then
    redis.call('SADD', key('holds'), RUN)
    notify_workers()
  end
elseif ARGV[1] == 'resume' then
  if ARGV[3] ~= '' and ARGV[3] ~= paused then
    return 0
  end
  redis.call('HDEL', key('paused_runs'), RUN)
  redis.call('SREM', key('holds'), RUN)
  -- Earlier failures count no more, unless a client ends its own pause: that client has not looked into them.
  if ARGV[3] == '' then
    redis.call('DEL', key('window', RUN))
    redis.call('HDEL', book, 'is_failing')
  end
  queue_grew = true
  index_run(RUN)
elseif ARGV[1] == 'serve' then
  redis.call('HSET', book, 'served', ARGV[3])
  queue_grew = true
  index_run(RUN)
else
  if ARGV[3] ~= '' then
    redis.call('HSET', book, 'weight', ARGV[3])
  end
  if ARGV[4] == '0' then
    redis.call('HDEL', book, 'quota')
  elseif ARGV[4] ~= '' then
    redis.call('HSET', book, 'quota', ARGV[4])
  end
  index_run(RUN)
end
wake()
return 1
