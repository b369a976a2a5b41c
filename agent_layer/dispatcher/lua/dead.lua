-- Try dead rollouts again where their group is still open, or forget them.
--
-- ARGV: 'retry' or 'drop', then rollout ids.
-- Returns per rollout '' (done), 'closed' (its group is: only a new group can try it again) or 'unknown'.

local function retry(rollout, r)
  local group, run, ready, score = unpack(redis.call('HMGET', r, 'group', 'run', 'ready', 'score'))
  local g = key('g', group)
  if redis.call('HGET', g, 'state') ~= 'open' then
    return 'closed'
  end
  redis.call('ZREM', key('dead'), rollout)
  redis.call('HINCRBY', g, 'open', 1)
  enqueue(rollout, 'dead', ready, score, 'failures', 0)
  count(run, 'dead', -1)
  return ''
end

local function drop(rollout, r)
  redis.call('ZREM', key('dead'), rollout)
  local g = key('g', redis.call('HGET', r, 'group'))
  local state, swept = unpack(redis.call('HMGET', g, 'state', 'swept'))
  local is_swept = state == 'closing' and tonumber(rollout:match('%d+$')) < tonumber(swept or 0)
  if state == 'closed' or is_swept then -- else its end lets go of them
    redis.call('EXPIRE', r, KEEP_SECONDS)
    if redis.call('HINCRBY', g, 'num_dead', -1) <= 0 and state == 'closed' then
      forget_group(g)
    end
  end
  return ''
end

local apply, answers = ARGV[1] == 'retry' and retry or drop, {}
for at = 2, #ARGV do
  local is_dead = redis.call('ZSCORE', key('dead'), ARGV[at])
  answers[#answers + 1] = is_dead and apply(ARGV[at], key('r', ARGV[at])) or 'unknown'
end
write_run_stats({})
wake()
return answers
