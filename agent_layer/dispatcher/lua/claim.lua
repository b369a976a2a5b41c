-- Lease rollouts: of the highest priority, then of the run whose turn it is, then what waited for the oldest policy
-- version, which is trained first, then what comes first.
--
-- ARGV: num, lease_ms, worker, run or '' for any, 1 where reap.lua was just called, id of this claim, then what the
-- worker is capable of. A claim that is repeated with its id, because its answer was lost, returns the same leases.
-- Returns {leases, lacking}; or {} when reap.lua is to be called first; or, where there is nothing to lease, {{}, lacking,
-- newest id of the wake stream, ms until a back-off or a lease ends, or -1 when there is neither}. Lacking are the needs
-- of sandboxes for which rollouts are left to others: this worker may not have tried yet what it can do. A lease is {rollout_id, token, attempt,
-- group_id, task, ms in the queue, checkpoint or ''}.

local NUM, WORKER, RUN, IS_REAPED = tonumber(ARGV[1]), ARGV[3], ARGV[4], ARGV[5] == '1'
local capable, newest, shares, paused, lacking = {}, {}, {}, {}, {}
local CLAIM_ID = ARGV[6]
for at = 7, #ARGV do
  capable[ARGV[at]] = true
end

-- The newest policy version that answers a run's calls: the one that a trainer declared, because a registered version
-- may not be loaded yet. Without a declaration, the newest registered one.
local function newest_policy(run)
  if not newest[run] then
    newest[run] = tonumber(redis.call('HGET', key('book', run), 'served') or -1)
    for _, number in ipairs(newest[run] < 0 and redis.call('HKEYS', POLICIES .. run) or {}) do
      newest[run] = math.max(newest[run], tonumber(number))
    end
  end
  return newest[run]
end

-- What a run may have: weight is its share, quota the most leases, turn when it is served next.
local function read_share(run)
  if not shares[run] then
    local weight, quota, turn, leased = unpack(redis.call('HMGET', key('book', run), 'weight', 'quota', 'turn', 'leased'))
    shares[run] = { weight = tonumber(weight or 1), turn = tonumber(turn or 0), leased = tonumber(leased or 0),
      quota = tonumber(quota or nil) or math.huge }
  end
  return shares[run]
end

local function may_take(run, from_policy, needs)
  if (RUN ~= '' and RUN ~= run) or paused[run] then
    return false
  end
  for need in needs:gmatch('[^,]+') do
    if not capable[need] then
      if need:match('^sandbox:') or need:match('^isolation:') then
        lacking[need] = true
      end
      return false
    end
  end
  return from_policy == '' or newest_policy(run) >= tonumber(from_policy)
end

-- The first rollout of a ready set that this worker may take; nil when there is none.
local function read_head(name)
  local run, priority, from_policy, needs = name:match('^([^/]*)/([^/]*)/([^/]*)/(.*)$')
  if not may_take(run, from_policy, needs) then
    return nil
  end
  local found = redis.call('ZRANGE', key('ready', name), 0, 0, 'WITHSCORES') -- most lease none: others go first
  if not found[1] then
    redis.call('SREM', key('ready'), name)
    return nil
  end
  return { name = name, run = run, priority = tonumber(priority), start = tonumber(from_policy) or 0, found = found, at = 1,
    score = tonumber(found[2]) }
end

local clock = touch_clock(tonumber(ARGV[2]))
local now_served = clock.turn

-- A run that had nothing to do does not get the turns that it missed.
local function find_turn(run)
  return math.max(read_share(run).turn, now_served)
end

local function goes_before(one, other)
  if one.priority ~= other.priority then
    return one.priority > other.priority
  end
  if one.run == other.run and one.start ~= other.start then
    return one.start < other.start
  end
  if one.run ~= other.run and find_turn(one.run) ~= find_turn(other.run) then
    return find_turn(one.run) < find_turn(other.run)
  end
  return one.score < other.score
end

-- Each run's heads in their order, the last first: what comes first in a run says nothing of others.
local function group_heads(heads)
  local heads_by_run = {}
  for _, head in ipairs(heads) do
    heads_by_run[head.run] = heads_by_run[head.run] or {}
    table.insert(heads_by_run[head.run], head)
  end
  for _, run_heads in pairs(heads_by_run) do
    table.sort(run_heads, function(one, other)
      return goes_before(other, one)
    end)
  end
  return heads_by_run
end

local function choose_head(heads_by_run)
  local first
  for run, run_heads in pairs(heads_by_run) do
    local share, head = read_share(run), run_heads[#run_heads]
    if head and share.leased < share.quota and (not first or goes_before(head, first)) then
      first = head
    end
  end
  return first
end

-- Look at more of a ready set; at four times as many in all, for one that yields much.
local function load_more(head)
  local num = #head.found / 2
  for _, one in ipairs(redis.call('ZRANGE', key('ready', head.name), num, 4 * num - 1, 'WITHSCORES')) do
    table.insert(head.found, one)
  end
end

-- Put the first of a line back to its place, after its first rollout was taken.
local function reinsert_head(run_heads)
  local at, head = #run_heads, run_heads[#run_heads]
  if not head.found[head.at] then
    load_more(head)
  end
  head.score = tonumber(head.found[head.at + 1])
  if not head.score then
    run_heads[at] = nil
    return
  end
  while at > 1 and goes_before(run_heads[at - 1], head) do
    run_heads[at], at = run_heads[at - 1], at - 1
  end
  run_heads[at] = head
end

local function take_turn(run)
  local share = read_share(run)
  now_served = find_turn(run)
  share.turn = now_served + 1 / share.weight
  share.leased = share.leased + 1
  share.has_changed = true
end

local tasks = {}

local function read_task(group)
  tasks[group] = tasks[group] or redis.call('HGET', key('g', group), 'task')
  return tasks[group]
end

-- A number that no attempt has: this server may have forgotten a claim of what was queued before it changed.
local function next_attempt(rollout, attempts, queued_at)
  local attempt = attempts + (tonumber(queued_at) < SERVER_CHANGED_AT and 1 or 0)
  while redis.call('EXISTS', STORED_TRAJECTORY .. trajectory_id(rollout, attempt)) == 1 do
    attempt = attempt + 1
  end
  return attempt
end

-- Tokens grow with the time: a server that lost its newest writes issues none of them a second time.
local last_token = math.max(clock.token, TIME[1] * 1000000 + TIME[2], NOW * 1000)
local LAPSES_AT = string.format('%d', NOW + ARGV[2])
local leased = {}

local function lease(rollout)
  local group, status, queued_at, attempts, checkpoint, ran =
    unpack(redis.call('HMGET', key('r', rollout), 'group', 'status', 'queued_at', 'attempts', 'checkpoint', 'ran'))
  local attempt = checkpoint and attempts - 1 or next_attempt(rollout, attempts, queued_at)
  last_token = last_token + 1
  local token = string.format('%.0f', last_token)
  if status == 'paused' then
    redis.call('ZREM', key('paused'), rollout)
  end
  move(rollout, status, 'leased', 'token', token, 'worker', WORKER, 'at', AT, 'attempts', attempt + 1,
    'began', checkpoint and NOW - ran or AT) -- as if it had not paused
  leased[#leased + 1], leased[#leased + 2] = LAPSES_AT, rollout
  return { rollout, token, attempt, group, read_task(group), NOW - queued_at, checkpoint or '' }
end

-- Take the head's first rollout out of it.
local function take(head)
  head.at = head.at + 2
  return head.found[head.at - 2]
end

local function save_claims(heads)
  for _, head in ipairs(heads) do
    if head.at > 1 then
      redis.call('ZREMRANGEBYRANK', key('ready', head.name), 0, (head.at - 1) / 2 - 1)
    end
  end
  if #leased > 0 then
    redis.call('ZADD', key('leases'), unpack(leased))
    redis.call('HSET', key('clock'), 'token', string.format('%.0f', last_token), 'turn', string.format('%.17g', now_served))
  end
  for run, share in pairs(shares) do
    if share.has_changed then
      redis.call('HSET', key('book', run), 'turn', string.format('%.17g', share.turn), 'leased', share.leased)
    end
  end
end

local function first_at(set)
  return tonumber(redis.call('ZRANGE', key(set), 0, 0, 'WITHSCORES')[2] or math.huge)
end

local function lapses_at(set)
  local at = first_at(set)
  return at > clock.outage_since and math.max(at, clock.grace_until) or at
end

-- The lease that an earlier try of this claim made; nil where it has ended.
local function lease_again(rollout, token)
  local group, status, queued_at, attempts, checkpoint, held =
    unpack(redis.call('HMGET', key('r', rollout), 'group', 'status', 'queued_at', 'attempts', 'checkpoint', 'token'))
  if holds(token, held) and status == 'leased' then
    return { rollout, token, attempts - 1, group, read_task(group), NOW - queued_at, checkpoint or '' }
  end
end

-- The leases that an earlier try of this claim made.
local function repeat_claim()
  local made, again = cjson.decode(redis.call('HGET', key('claims'), WORKER) or '[]'), {}
  for at = 2, made[1] == CLAIM_ID and #made or 0, 2 do
    again[#again + 1] = lease_again(made[at], made[at + 1])
  end
  return again
end

local function remember_claim(leases)
  local made = { CLAIM_ID }
  for _, one in ipairs(leases) do
    made[#made + 1], made[#made + 2] = one[1], one[2]
  end
  redis.call('HSET', key('claims'), WORKER, cjson.encode(made))
end

local function list_names(set)
  local names = {}
  for name in pairs(set) do
    names[#names + 1] = name
  end
  return names
end

local again = repeat_claim()
if #again > 0 then
  return { again, {} }
end
local due = math.min(first_at('delayed'), lapses_at('leases'))
if not IS_REAPED and math.min(due, lapses_at('parting')) <= NOW then
  return {}
end
local heads, leases = {}, {}
local drains = redis.call('SISMEMBER', key('draining'), WORKER) == 1
for _, run in ipairs(redis.call('HKEYS', key('paused_runs'))) do
  paused[run] = true
end
for _, name in ipairs(drains and {} or redis.call('SMEMBERS', key('ready'))) do
  heads[#heads + 1] = read_head(name)
end
local heads_by_run = group_heads(heads)
for taken = 1, NUM do
  local first = choose_head(heads_by_run)
  if not first then
    break
  end
  take_turn(first.run)
  leases[#leases + 1] = lease(take(first))
  if taken < NUM then
    reinsert_head(heads_by_run[first.run])
  end
end
save_claims(heads)
if #leases > 0 then
  remember_claim(leases)
  return { leases, list_names(lacking) }
end
local woken = redis.call('XREVRANGE', key('wake'), '+', '-', 'COUNT', 1)[1]
return { leases, list_names(lacking), woken and woken[1] or '0-0', due < math.huge and math.max(due - NOW, 1) or -1 }
