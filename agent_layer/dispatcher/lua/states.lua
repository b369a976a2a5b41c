-- States of rollouts, groups, workers and runs, with the fields of the records in models.py.

local function hash(name)
  local flat, map = redis.call('HGETALL', name), {}
  for at = 1, #flat, 2 do
    map[flat[at]] = flat[at + 1]
  end
  return map
end

-- A time of the shared clock as time of day. The two differ by whole seconds where one of them stood still or jumped.
local OFFSET = math.floor(TIME[1] - NOW / 1000 + TIME[2] / 1000000 + 0.5)

local function at(milliseconds)
  return milliseconds and milliseconds / 1000 + OFFSET or nil
end

local function number(text)
  return tonumber(text or 0)
end

local function read_errors(fields)
  local errors, attempts = {}, {}
  for num = 1, number(fields.errors) do
    errors[num] = fields['error:' .. num]
    attempts[num] = tonumber(fields['error_attempt:' .. num])
  end
  return errors, attempts
end

-- Seconds from now until then; nothing where there is no such time.
local function ahead(set, member)
  local till = redis.call('ZSCORE', set, member)
  return till and math.max(till - NOW, 0) / 1000 or nil
end

local function find_mean(milliseconds, num)
  return num and num ~= '0' and (milliseconds or 0) / num / 1000 or nil -- sums of 0 are not written
end

-- Whether a member is launched, and other scripts are still to make it claimable.
local function is_unfilled(fields, member)
  local launched = number(fields.launched)
  return member < launched and member >= launched - number(fields.unfilled)
end

local function unfilled_state(rollout)
  local group, member = rollout:match('^(.*)%.(%d+)$')
  local fields = group and hash(key('g', group))
  if fields and is_unfilled(fields, tonumber(member)) then
    return { rollout_id = rollout, group_id = group, run = fields.run, status = 'queued', num_attempts = 0, num_failures = 0,
      since = at(fields.queued_at), errors = {}, error_attempts = {} }
  end
end

local function rollout_state(rollout)
  local fields = hash(key('r', rollout))
  if not fields.group then
    return unfilled_state(rollout)
  end
  local is_queued = fields.status == 'queued'
  local errors, error_attempts = read_errors(fields)
  return { rollout_id = rollout, group_id = fields.group, run = fields.run, status = fields.status, worker = fields.worker,
    num_attempts = tonumber(fields.attempts), num_failures = tonumber(fields.failures),
    accepted = tonumber(fields.accepted), since = at(is_queued and fields.queued_at or fields.at), errors = errors,
    error_attempts = error_attempts, checkpoint = fields.checkpoint,
    lease_seconds = fields.token ~= '' and ahead(key('leases'), rollout) or nil,
    delay_seconds = is_queued and ahead(key('delayed'), rollout) or nil }
end

local function group_state(group)
  local fields = hash(key('g', group))
  if not fields.run then
    return nil
  end
  return { group_id = group, run = fields.run, task_id = fields.task_id, task_type = fields.task_type,
    split = fields.split, group_size = tonumber(fields.group_size), num_launched = number(fields.launched),
    num_open = number(fields.open), num_usable = number(fields.usable), partial = fields.partial, fill = fields.fill,
    is_closed = fields.state == 'closed', num_accepted = tonumber(fields.num_accepted),
    num_surplus = number(fields.num_cut), kept_seconds = find_mean(fields.kept_ms, fields.usable),
    surplus_seconds = find_mean(fields.cut_ms, fields.num_cut), queued_at = at(fields.queued_at),
    closed_at = at(fields.closed_at) }
end

local function worker_state(worker)
  local seen = redis.call('ZSCORE', key('workers'), worker)
  local about = cjson.decode(redis.call('HGET', key('worker'), worker) or '{}')
  return { worker = worker, seen_at = at(seen), silent_seconds = (NOW - seen) / 1000,
    is_draining = redis.call('SISMEMBER', key('draining'), worker) == 1,
    about = next(about) and about or nil }
end

local MAX_COUNTED = 1000

local function add_to(map, name, by)
  map[name] = (map[name] or 0) + by
end

local unlisted

-- Ready sets of an earlier version that no change has listed yet.
local function unlisted_sets()
  unlisted = unlisted or redis.call('SMEMBERS', key('ready'))
  return unlisted
end

-- Count the members of a set, by run. A large set is sampled, and the other members are taken to be like the sample.
local function members_by_run(set)
  local counts, ids = {}, redis.call('ZRANGE', key(set), 0, MAX_COUNTED - 1)
  for _, rollout in ipairs(ids) do
    add_to(counts, redis.call('HGET', key('r', rollout), 'run'), 1)
  end
  local times = #ids == MAX_COUNTED and redis.call('ZCARD', key(set)) / MAX_COUNTED or 1
  for run, num in pairs(counts) do
    counts[run] = math.floor(num * times + 0.5)
  end
  return counts
end

-- How many rollouts of a run are in ready sets (paused ones among them), by needs.
local function waiting_of_run(run)
  local counts = {}
  for _, name in ipairs(redis.call('SMEMBERS', key('sets', run))) do
    add_to(counts, parse_set(name).needs, redis.call('ZCARD', key('ready', name)))
  end
  for _, name in ipairs(unlisted_sets()) do
    if parse_set(name).run == run then
      add_to(counts, parse_set(name).needs, redis.call('ZCARD', key('ready', name)))
    end
  end
  return counts
end

-- As waiting_of_run, of all runs.
local function waiting_of_all()
  local counts = {}
  for needs, num in pairs(hash(key('waiting'))) do
    counts[needs] = tonumber(num)
  end
  for _, name in ipairs(unlisted_sets()) do
    add_to(counts, parse_set(name).needs, redis.call('ZCARD', key('ready', name)))
  end
  return counts
end

local function sum(counts)
  local total = 0
  for _, num in pairs(counts) do
    total = total + num
  end
  return total
end

-- How many were accepted lately, and in how many seconds: since the minute of the first, one minute at least.
local function accepted_lately(run)
  local num, flat, minute = 0, redis.call('HGETALL', key('ended', run)), math.floor(NOW / 60000)
  local first = minute
  for at = 1, #flat, 2 do
    if tonumber(flat[at]) >= minute - 4 then
      num = num + flat[at + 1]
      first = math.min(first, tonumber(flat[at]))
    end
  end
  return num, math.max(60, NOW / 1000 - first * 60)
end

local function run_state(run, book, delayed, paused)
  local causes = {}
  for name, num in pairs(book) do
    causes[#causes + 1] = name:match('^failed:') and { name:sub(8), tonumber(num) } or nil
  end
  local lately, lately_seconds = accepted_lately(run)
  local newest, num_failed = redis.call('LRANGE', key('window', run), 0, -1), 0
  for _, failed in ipairs(newest) do
    num_failed = num_failed + failed
  end
  return { run = run, weight = number(book.weight), quota = tonumber(book.quota),
    paused = redis.call('HGET', key('paused_runs'), run) or nil,
    num_queued = math.max(0, sum(waiting_of_run(run)) - (paused[run] or 0)), num_delayed = delayed[run] or 0,
    num_paused = paused[run] or 0,
    is_failing = book.is_failing == '1',
    num_leased = number(book.leased), num_accepted = number(book.accepted), num_unusable = number(book.unusable),
    num_cancelled = number(book.cancelled), num_surplus = number(book.surplus), num_dead = number(book.dead),
    num_lapsed = number(book.lapsed), causes = causes, accepted_lately = lately, lately_seconds = lately_seconds,
    num_judged = #newest, failure_rate = #newest > 0 and num_failed / #newest or nil,
    kept_seconds = find_mean(book.kept_ms, book.num_kept), surplus_seconds = find_mean(book.cut_ms, book.num_cut) }
end
