-- End leases: accept an attempt, hand its rollout on, or give it up.
--
-- ARGV: max_attempts, then per report: rollout_id token ending error delay_ms.
-- ending is completed or truncated (accepted), retry (counts as a failure), release (does not), dead (never again).
-- Returns per report {'yes', '', '', 0} or {'no', status, worker, newest attempt}. The same report said again by its
-- owner is answered yes.

local YES = { 'yes', '', '', 0 }

local function apply(rollout, r, ending, error, delay_ms)
  if FINAL[ending] and ending ~= 'dead' then
    local group, attempts = unpack(redis.call('HMGET', r, 'group', 'attempts'))
    redis.call('ZREM', key('leases'), rollout)
    redis.call('HDEL', r, 'token')
    redis.call('HSET', r, 'accepted', attempts - 1)
    redis.call('XADD', OUTBOX, '*', 'kind', 'accepted', 'trajectory_id', trajectory_id(rollout, attempts - 1),
      'rollout_id', rollout, 'group_id', group, 'run', redis.call('HGET', key('g', group), 'run'), 'at', seconds(NOW))
    finish(rollout, ending)
  else
    hand_on(rollout, error, ending ~= 'release', ending == 'dead' and 1 or tonumber(ARGV[1]), tonumber(delay_ms))
  end
end

local function settle(rollout, token, ending, error, delay_ms)
  local r = key('r', rollout)
  local held, ended, status, worker, attempts =
    unpack(redis.call('HMGET', r, 'token', 'ended', 'status', 'worker', 'attempts'))
  local report = token .. ' ' .. ending
  if held == token then
    redis.call('HSET', r, 'ended', report)
    apply(rollout, r, ending, error, delay_ms)
    return YES
  end
  if ended == report then
    return YES
  end
  return { 'no', status or 'unknown', worker or '', (attempts or 0) - 1 }
end

local answers = {}
for at = 2, #ARGV, 5 do
  answers[#answers + 1] = settle(unpack(ARGV, at, at + 4))
end
wake()
return answers
