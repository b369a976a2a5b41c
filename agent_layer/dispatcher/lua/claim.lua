-- Lease rollouts, those first that come first in the order of priority, then of asking.
--
-- ARGV: num, lease_ms, max_attempts, worker, run or '' for any, then what the worker is capable of.
-- Returns {leases, newest id of the wake stream, ms until a delayed rollout is due or -1};
-- a lease is {rollout_id, token, attempt, group_id, task, ms in the queue}.

local capable = {}
for at = 6, #ARGV do
  capable[ARGV[at]] = true
end

local function may_take(name)
  local run, needs = name:match('^([^/]*)/(.*)$')
  if (ARGV[5] ~= '' and ARGV[5] ~= run) or redis.call('SISMEMBER', key('paused'), run) == 1 then
    return false
  end
  for need in needs:gmatch('[^,]+') do
    if not capable[need] then
      return false
    end
  end
  return true
end

local function head_of(name)
  local head = redis.call('ZRANGE', key('ready', name), 0, 0, 'WITHSCORES')
  if not head[1] then
    redis.call('SREM', key('ready'), name)
    return nil
  end
  return { name = name, rollout = head[1], score = tonumber(head[2]) }
end

local function first_of(heads)
  local best
  for name, head in pairs(heads) do
    if not best or head.score < best.score then
      best = head
    end
  end
  return best
end

local function lease(rollout)
  local r = key('r', rollout)
  local group, queued_at = unpack(redis.call('HMGET', r, 'group', 'queued_at'))
  local attempt
  repeat
    attempt = redis.call('HINCRBY', r, 'attempts', 1) - 1
  until redis.call('EXISTS', STORED_TRAJECTORY .. trajectory_id(rollout, attempt)) == 0
  local token = redis.call('INCR', key('tokens'))
  redis.call('HSET', r, 'status', 'leased', 'token', token, 'worker', ARGV[4], 'at', NOW)
  redis.call('ZADD', key('leases'), NOW + ARGV[2], rollout)
  return { rollout, token, attempt, group, redis.call('HGET', key('g', group), 'task'), NOW - queued_at }
end

reap(tonumber(ARGV[3]))
promote()
wake() -- others may take what this worker cannot
local heads, leases = {}, {}
for _, name in ipairs(redis.call('SMEMBERS', key('ready'))) do
  heads[name] = may_take(name) and head_of(name) or nil
end
for _ = 1, tonumber(ARGV[1]) do
  local first = first_of(heads)
  if not first then
    break
  end
  redis.call('ZREM', key('ready', first.name), first.rollout)
  leases[#leases + 1] = lease(first.rollout)
  heads[first.name] = head_of(first.name)
end
local woken = redis.call('XREVRANGE', key('wake'), '+', '-', 'COUNT', 1)[1]
local due = redis.call('ZRANGE', key('delayed'), 0, 0, 'WITHSCORES')[2]
return { leases, woken and woken[1] or '0-0', due and math.max(due - NOW, 1) or -1 }
