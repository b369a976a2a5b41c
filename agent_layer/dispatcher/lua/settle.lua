-- End leases: accept an attempt, pause it, hand its rollout on, or give it up.
--
-- ARGV: max_attempts, window, rate, then per report: rollout_id token ending cause error delay_ms usable.
-- ending is completed or truncated (accepted), pause (the attempt goes on later), retry (counts as a failure), release
-- (does not), dead (never again). usable is 1 when the attempt counts towards its group.
-- Returns {answers, number of groups that reap.lua has to go on with}; per report {'yes', '', '', 0} or {'no', status,
-- worker, newest attempt}. The same report, repeated by its owner, is answered yes.

local FIELDS = 7
local YES = { 'yes', '', '', 0 }
local RULES = rules_at(1)

-- Accept an attempt; when its group has enough, end the others.
local function accept(rollout, held, report)
  local group, attempt, is_usable = read_group(held.group), held.attempts - 1, report.usable == '1'
  redis.call('XADD', OUTBOX, '*', 'kind', 'accepted', 'trajectory_id', trajectory_id(rollout, attempt),
    'rollout_id', rollout, 'group_id', held.group, 'run', held.run, 'at', now_of_day())
  end_lease(rollout, held.run)
  count(held.run, 'accepted')
  count(held.run, 'unusable', is_usable and 0 or 1)
  note_end(held.run, not is_usable and report.error ~= '' and report.cause .. ': ' .. report.error or nil)
  if is_usable then
    group.usable, group.kept_ms = group.usable + 1, group.kept_ms + NOW - held.began
  end
  finish(rollout, held.status, report.ending, group, 'accepted', attempt, 'token', '', 'ended', report.report_id)
  close_if_enough(group)
end

-- Pause an attempt that can go on; return whether it can.
local function pause(rollout, held, report_id)
  local checkpoint, ready, score = unpack(redis.call('HMGET', key('r', rollout), 'checkpoint', 'ready', 'score'))
  if not checkpoint or not may_move(held.status, 'paused') then
    return false
  end
  end_lease(rollout, held.run)
  move(rollout, held.status, 'paused', 'queued_at', AT, 'at', AT, 'token', '', 'ended', report_id, 'ran', NOW - held.began)
  redis.call('ZADD', key('paused'), AT, rollout)
  enter(rollout, ready, score)
  return true
end

local function apply(rollout, held, report)
  local ending = report.ending
  if ending == 'completed' or ending == 'truncated' then
    return accept(rollout, held, report)
  end
  if ending == 'pause' and pause(rollout, held, report.report_id) then
    return
  end
  local r, counts = key('r', rollout), ending == 'retry' or ending == 'dead'
  redis.call('HSET', r, 'ended', report.report_id)
  if counts then
    redis.call('HDEL', r, 'checkpoint') -- the next attempt begins without it
  end
  requeue(rollout, held, { error = report.error, cause = report.cause ~= '' and report.cause or 'infra', counts = counts,
    max_attempts = ending == 'dead' and 1 or RULES.max_attempts, delay_ms = tonumber(report.delay_ms) })
end

local function settle(rollout, token, ending, cause, error, delay_ms, usable)
  local held, report_id = read_fields(key('r', rollout), HELD_FIELDS), token .. ' ' .. ending
  if holds(token, held.token) and end_decided(rollout, held) then
    held = read_fields(key('r', rollout), HELD_FIELDS)
  elseif holds(token, held.token) then
    apply(rollout, held, { ending = ending, report_id = report_id, cause = cause, error = error, delay_ms = delay_ms, usable = usable })
    return YES
  end
  local ended, worker = unpack(redis.call('HMGET', key('r', rollout), 'ended', 'worker'))
  if ended == report_id then
    return YES
  end
  return { 'no', held.status or 'unknown', worker or '', (held.attempts or 0) - 1 }
end

local answers = {}
for at = 4, #ARGV, FIELDS do
  answers[#answers + 1] = settle(unpack(ARGV, at, at + FIELDS - 1))
end
write_all(RULES)
return { answers, num_unfinished() }
