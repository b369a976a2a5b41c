-- What all scripts of the queue share: keys, time, and the moves that a rollout may make.
--
-- KEYS[1] prefix of the dispatcher's keys, KEYS[2] the outbox, KEYS[3] and KEYS[4] what the keys of groups and of
-- trajectories in the index begin with, KEYS[5] hash of what was deleted, KEYS[6] what the keys of policy versions begin
-- with, KEYS[7] the shared clock. Everything else is derived from them, in their slot.
--   r:<rollout>    hash: group run status ready score attempts failures errors error:<n> error_attempt:<n> token worker
--                  queued_at at began ran ended accepted checkpoint, and server: its changes when the newest attempt had its number
--   g:<group>      hash: run task_id task_type split group_size launched open usable partial state ready task queued_at
--                  closed_at num_accepted num_dead num_refills fill, kept_ms of its usable rollouts, and of its surplus those that
--                  were cut off while they ran: num_cut cut_ms; while it is unfinished: unfilled (members that are to be made
--                  claimable) base step (their places), swept (members that are closed) cut (why the others are cancelled)
--   unfinished     set of groups that are launched or closed in part; num_unfilled  sum of what is unfilled
--   members:<group>  list of its accepted attempts, while it closes
--   ready:<name>   sorted set of rollouts that may be claimed now, by score; its name is 'run/priority/from_policy/need,need'
--   ready          set of names of ready sets that an earlier version filled, which are not in the index yet
--   sets:<run>     set of names of its ready sets; those that became empty go when they are read
--   classes:<need> sorted set of classes 'priority/needs' whose needs begin so (none: ''), by -priority; see index.lua
--   due:<class>    sorted set of runs whose turn has come, by the lowest score that waits there
--   turns:<class>  sorted set of turns that come later; later:<class>:<turn>  the runs of that turn, as in due
--   awaiting       sorted set of runs with rollouts that wait for a policy version, by that version
--   waiting        hash: needs → how many rollouts are in ready sets with them; num_waiting  their sum
--   kinds          hash: kind of worker → run and capabilities as msgpack, while workers of it wait
--   waiters:<kind> sorted set of waiting workers, by when they look by themselves; wake:<waiter>  list that wakes one
--   delayed        sorted set of rollouts that wait out a back-off, by when that ends
--   leases         sorted set of leased rollouts, by when the lease lapses
--   paused         sorted set of paused rollouts, by when they were paused
--   parting        sorted set of rollouts that were cancelled while they were leased, by when the lease lapses
--   dead           sorted set of rollouts that failed too often, by when the last attempt ended
--   open           sorted set of groups that are not closed, by order of asking
--   paused_runs    hash: run → why; holds  set of those whose leased rollouts pause, too
--   runs           set of all runs that ever were asked for
--   book:<run>     hash: weight quota turn leased served is_failing, and counts of what became of its rollouts
--   window:<run>   list of its newest attempts, newest first: 0 ended well, 1 failed; the first stop_failure_window count
--   ended:<run>    hash: minute → rollouts that were accepted in it; took:<run>  hash: task → ms that an attempt takes
--   workers, worker, claims  when each was seen, what it reported, id and leases of its newest claim; draining  set of those that finish and exit
--   calls:<worker> stream that wakes one worker; calls  one that wakes all; wake, closed  streams that wake pages and waiting clients
--   seq            counter; clock  hash: newest token, turn that is served, heard: about the time of the last
--                  call, away and truce: leases that ran out after the one do not lapse before the other
-- All times are milliseconds of the shared clock (clock.py), which no wall clock moves; only decisions in the outbox carry
-- the time of day.

local OUTBOX = KEYS[2]
local STORED_GROUP, STORED_TRAJECTORY, DELETED = KEYS[3], KEYS[4], KEYS[5] -- they outlive the queue: the index is rebuilt
local POLICIES, CLOCK = KEYS[6], KEYS[7]
local TIME = redis.call('TIME') -- of day: it may jump
local NOW, STORED_TIME = read_time(CLOCK)
local AT = string.format('%d', NOW) -- as it is written: Redis is slow to make a text of a number
local KEEP_SECONDS = 86400 -- how long rollouts of a closed group can still be asked about
local FINAL = { completed = true, truncated = true, cancelled = true, dead = true }

-- From which status a rollout may go to which. A rollout without a lease is queued, paused or final. Each call of a
-- script makes this table again, and texts cost less than tables.
local MOVES = {
  new = ' queued ',
  queued = ' leased cancelled ',
  paused = ' leased cancelled ',
  leased = ' running scoring sealing completed truncated paused queued dead cancelled ',
  running = ' scoring sealing completed truncated paused queued dead cancelled ',
  scoring = ' sealing completed truncated queued dead cancelled ',
  sealing = ' completed truncated queued dead cancelled ',
  completed = '', truncated = '', cancelled = '',
  dead = ' queued ',
}
local PREFIX = KEYS[1] .. ':'

local function key(kind, name)
  return PREFIX .. (name and kind .. ':' .. name or kind)
end

-- Those fields of a hash, by name.
local function read_fields(name, names)
  local values, fields = redis.call('HMGET', name, unpack(names)), {}
  for at, field in ipairs(names) do
    fields[field] = values[at] or nil
  end
  return fields
end

local sets_by_name = {}

-- What the name of a ready set says of it.
local function parse_set(name)
  if not sets_by_name[name] then
    local run, priority, from_policy, needs = name:match('^([^/]*)/([^/]*)/([^/]*)/(.*)$')
    sets_by_name[name] = { name = name, run = run, priority = tonumber(priority), from_policy = tonumber(from_policy),
      needs = needs, class = priority .. '/' .. needs }
  end
  return sets_by_name[name]
end

local function seconds(milliseconds)
  return string.format('%.3f', milliseconds / 1000)
end

-- The time of day, as records carry it.
local function now_of_day()
  return seconds(TIME[1] * 1000 + math.floor(TIME[2] / 1000))
end

local function trajectory_id(rollout, attempt) -- as schema.ids.make_trajectory_id
  return rollout .. '-' .. attempt
end

-- When a rollout becomes dead and its run is paused: three arguments, from there on.
local function rules_at(at)
  return { max_attempts = tonumber(ARGV[at]), window = tonumber(ARGV[at + 1]), rate = tonumber(ARGV[at + 2]) }
end

-- Whether the lease with this token holds the rollout; '' holds none.
local function holds(token, held)
  return token ~= '' and token == held
end

-- Record a call; return the clock. After a long silence this server may have been away: leases that ran out meanwhile
-- lapse only after all workers had the time to ask again. A worker that was gone before gets no second grace: silence
-- alone keeps no lease for ever.
local function touch_clock(lease_ms)
  local turn, token, heard, outage_since, grace_until =
    unpack(redis.call('HMGET', key('clock'), 'turn', 'token', 'heard', 'away', 'truce'))
  local clock = { turn = tonumber(turn or 0), token = tonumber(token or 0), outage_since = tonumber(outage_since or 0),
    grace_until = tonumber(grace_until or 0) }
  local silent_ms = NOW - (heard or 0)
  if heard and silent_ms > 0.3 * lease_ms then
    clock.outage_since, clock.grace_until = tonumber(heard), NOW + lease_ms / 2
    redis.call('HSET', key('clock'), 'heard', AT, 'away', heard, 'truce', clock.grace_until)
  elseif silent_ms > lease_ms / 32 then
    redis.call('HSET', key('clock'), 'heard', AT)
  end
  if NOW - STORED_TIME > 1000 then
    store_time(CLOCK, NOW)
  end
  return clock
end

local function may_move(from, to)
  return MOVES[from]:find(' ' .. to .. ' ', 1, true) ~= nil
end

-- Change the status of a rollout, and other fields with it. An illegal move is an error of ours: nothing is written.
local function move(rollout, from, to, ...)
  if not may_move(from, to) then
    error('rollout ' .. rollout .. ': expected a legal move, found ' .. from .. ' to ' .. to)
  end
  redis.call('HSET', key('r', rollout), 'status', to, ...)
end
