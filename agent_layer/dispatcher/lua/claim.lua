-- Lease rollouts in the order of choose.lua.
--
-- ARGV: num, lease_ms, worker, run or '' for any, 1 where reap.lua was just called, id of this claim, id of the waiter or
-- '', for how many ms it waits where there is nothing to lease (0: not), 1 where it asks what it lacks; then what the
-- worker is capable of. A claim that is repeated with its id, because its answer was lost, returns the same leases.
-- Returns {leases, lacking}; or {} when reap.lua is to be called first; or, where there is nothing to lease, {{}, lacking,
-- ms until a back-off or a lease ends, or -1 when there is neither}. Lacking are the needs of sandboxes for which
-- rollouts are left to others: this worker may not have tried yet what it can do. A lease is {rollout_id, token, attempt,
-- group_id, task, ms in the queue, checkpoint or ''}.

local RUN, CAPABILITIES = ARGV[4], { unpack(ARGV, 10) }
local WORKER, IS_REAPED, CLAIM_ID = ARGV[3], ARGV[5] == '1', ARGV[6]
local WAITER, WAIT_MS, WANTS_LACKING = ARGV[7], tonumber(ARGV[8]), ARGV[9] == '1'
local MAX_MOVED, MAX_AWAITING = 64, 8
local num_moved = 0
local clock = touch_clock(tonumber(ARGV[2]))

local tasks = {}

-- The task of a group; nil where the group is closing.
local function read_task(group)
  if tasks[group] == nil then
    local task, state = unpack(redis.call('HMGET', key('g', group), 'task', 'state'))
    tasks[group] = state == 'open' and task
  end
  return tasks[group] or nil
end

-- A number that no attempt has: since it gave the newest one, the server may have changed and forgotten another.
local function next_attempt(rollout, attempts, server)
  local attempt = attempts + (server ~= SERVER_CHANGE and 1 or 0)
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
  local group, status, queued_at, attempts, checkpoint, ran, server =
    unpack(redis.call('HMGET', key('r', rollout), 'group', 'status', 'queued_at', 'attempts', 'checkpoint', 'ran', 'server'))
  local task = read_task(group)
  if not task then
    return nil
  end
  local attempt = checkpoint and attempts - 1 or next_attempt(rollout, attempts, server)
  last_token = last_token + 1
  local token = string.format('%.0f', last_token)
  if status == 'paused' then
    redis.call('ZREM', key('paused'), rollout)
  end
  move(rollout, status, 'leased', 'token', token, 'worker', WORKER, 'at', AT, 'attempts', attempt + 1,
    'began', checkpoint and NOW - ran or AT, -- as if it had not paused
    'server', checkpoint and (server or '') or SERVER_CHANGE)
  leased[#leased + 1], leased[#leased + 2] = LAPSES_AT, rollout
  return { rollout, token, attempt, group, task, NOW - queued_at, checkpoint or '' }
end

local leases, num_taken = {}, {}

-- Lease a rollout that is the first of a ready set; return whether it was: what is to be cancelled only leaves the set.
local function take(rollout, set)
  local made = lease(rollout)
  num_taken[set] = (num_taken[set] or 0) + 1
  leases[#leases + 1] = made
  return made ~= nil
end

-- List under due what stands at turns that are past, but for the newest of them: it is in the right order as it is.
local function admit_due(class)
  local left = MAX_MOVED
  read_front(class.turns)
  while left > 0 and class.turns.page[4] and tonumber(class.turns.page[4]) <= now_served do
    local turn = class.turns.page[1]
    local later = key('later', class.name .. ':' .. turn)
    local listed, places = redis.call('ZRANGE', later, 0, left - 1, 'WITHSCORES'), {}
    for at = 1, #listed, 2 do
      places[at], places[at + 1] = listed[at + 1], listed[at]
    end
    if #places > 0 then
      redis.call('ZADD', class.due.name, 'LT', unpack(places))
      redis.call('ZREMRANGEBYRANK', later, 0, #places / 2 - 1)
    end
    if #places / 2 < left then
      redis.call('ZREM', class.turns.name, turn)
    end
    left, class.turns = left - #places / 2, open_set(class.turns.name)
    read_front(class.turns)
  end
end

-- List again the runs whose policy version was registered meanwhile: of some runs each time, of all in time.
local function admit_awaiting()
  local waiting = redis.call('ZRANDMEMBER', key('awaiting'), MAX_AWAITING, 'WITHSCORES')
  for at = 1, #waiting, 2 do
    if newest_policy(waiting[at]) >= tonumber(waiting[at + 1]) then
      redis.call('ZREM', key('awaiting'), waiting[at])
      index_run(waiting[at], 0)
    end
  end
  index_entered()
end

-- The lowest score that a run has in each class; nothing where it may not be served.
local function find_lowest(candidate)
  if candidate and not candidate.lowest then
    candidate.lowest = {}
    for _, head in ipairs(candidate.heads) do
      candidate.lowest[head.set.class] = math.min(candidate.lowest[head.set.class] or head.score, head.score)
    end
  end
  return candidate and candidate.lowest or {}
end

local function correct_place(one)
  local turn, lowest = read_share(one.run).turn, find_lowest(one.loaded[one.run])[one.class.name]
  one.class.is_used = one.class.is_used or lowest ~= nil
  local is_right = lowest == one.score and one.key == name_place(one.class.name, turn, now_served)
  if not lowest or (not is_right and num_moved < MAX_MOVED) then
    redis.call('ZREM', one.key, one.run)
    if lowest then
      num_moved = num_moved + 1
      place(one.class.name, one.run, lowest, turn, now_served)
    end
  end
end

-- Correct all places that were read: what was taken, what may not be served now, what was never there.
local function correct_index()
  for set, num in pairs(num_taken) do
    redis.call('ZREMRANGEBYRANK', key('ready', set.name), 0, num - 1)
    count_waiting(set.needs, -num)
  end
  for _, set in ipairs(emptied) do
    redis.call('SREM', key('sets', set.run), set.name)
  end
  for _, class in ipairs(opened) do
    if #class.spent > 0 then
      redis.call('ZREM', key('turns', class.name), unpack(class.spent))
    end
  end
  for _, one in ipairs(visited) do
    correct_place(one)
  end
  for _, class in ipairs(opened) do
    if not class.is_used and redis.call('EXISTS', class.due.name, class.turns.name) == 0 then
      redis.call('ZREM', list_of_class(class.name:match('^[^/]*/(.*)$')), class.name)
    end
  end
  for run, from_policy in pairs(awaited) do
    redis.call('ZADD', key('awaiting'), 'LT', from_policy, run)
  end
  index_entered()
end

local function save_claims()
  correct_index()
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
  if holds(token, held) and status == 'leased' and read_task(group) then
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

-- Needs of sandboxes that this worker lacks, and nothing before them, for rollouts that wait.
local function list_lacking()
  local lacking, names = {}, {}
  for _, needs in ipairs(redis.call('HKEYS', key('waiting'))) do
    local need = find_lack(capable, needs)
    if need and (need:match('^sandbox:') or need:match('^isolation:')) and not lacking[need] then
      lacking[need] = true
      names[#names + 1] = need
    end
  end
  return names
end

-- A kind is what a worker serves: all that is in it can be leased by each of its workers.
local function find_kind()
  table.sort(CAPABILITIES)
  local about = cmsgpack.pack({ RUN, CAPABILITIES })
  return redis.sha1hex(about), about
end

local function end_wait()
  redis.call('ZREM', key('waiters', (find_kind())), WAITER)
  redis.call('DEL', key('wake', WAITER))
end

-- What enters from now on wakes this waiter, until it looks by itself.
local function begin_wait()
  local kind, about = find_kind()
  redis.call('HSET', key('kinds'), kind, about)
  redis.call('ZADD', key('waiters', kind), NOW + WAIT_MS, WAITER)
end

if WAITER ~= '' then
  end_wait()
end
local again = repeat_claim()
if #again > 0 then
  return { again, {} }
end
local due = math.min(first_at('delayed'), lapses_at('leases'))
local is_due = math.min(due, lapses_at('parting')) <= NOW or redis.call('EXISTS', key('unfinished')) == 1
if is_due and not IS_REAPED then
  return {}
end
now_served, prepare_class = clock.turn, admit_due
admit_awaiting()
local drains, lacking = redis.call('SISMEMBER', key('draining'), WORKER) == 1, {}
if not drains then
  take_in_order(tonumber(ARGV[1]), RUN, CAPABILITIES, take)
  lacking = WANTS_LACKING and list_lacking() or lacking
end
save_claims()
if #leases > 0 then
  remember_claim(leases)
  return { leases, lacking }
elseif num_loaded > 0 and num_loaded >= max_loaded then
  return {} -- what it looked at may not be served; it goes on behind that
elseif WAIT_MS > 0 then
  begin_wait()
end
return { leases, lacking, due < math.huge and math.max(due - NOW, 1) or -1 }
