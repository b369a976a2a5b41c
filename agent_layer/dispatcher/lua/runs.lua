-- Books of runs: what became of their rollouts, and when a run has to be paused. What a script notes is written once,
-- at its end: every write goes into the append-only file by itself.

local MAX_TASKS = 100000 -- whose durations a run remembers
local counted, ended, took = {}, {}, {}

-- Count something for a run.
local function count(run, what, by)
  counted[run] = counted[run] or {}
  counted[run][what] = (counted[run][what] or 0) + (by or 1)
end

-- Note how an attempt ended; why is nil when it ended well.
local function note_end(run, why)
  ended[run] = ended[run] or {}
  table.insert(ended[run], why and 1 or 0)
  ended[run].why = why or ended[run].why
end

-- Note how long an attempt at a task took, so that long ones begin first next time.
local function note_time(run, task_id, milliseconds)
  took[run] = took[run] or {}
  took[run][task_id] = math.max(took[run][task_id] or 0, milliseconds)
end

-- Add what was counted to the book of a run.
local function write_counts(run, counts)
  local names, sums = {}, {}
  for what, by in pairs(counts) do
    names[#names + 1] = by ~= 0 and what or nil
  end
  if #names == 0 then
    return
  end
  for at, found in ipairs(redis.call('HMGET', key('book', run), unpack(names))) do
    sums[#sums + 1], sums[#sums + 2] = names[at], (found or 0) + counts[names[at]]
  end
  redis.call('HSET', key('book', run), unpack(sums))
end

-- Count what was accepted by minutes, for ten of them.
local function count_minute(run, num)
  local name, minute = key('ended', run), math.floor(NOW / 60000)
  if redis.call('HINCRBY', name, minute, num) == num then -- the first of this minute
    for _, old in ipairs(redis.call('HKEYS', name)) do
      if tonumber(old) < minute - 10 then
        redis.call('HDEL', name, old)
      end
    end
  end
end

local function num_failed(run, window)
  local num = 0
  for _, one in ipairs(redis.call('LRANGE', key('window', run), 0, window - 1)) do
    num = num + one
  end
  return num
end

-- Pause a run when too many of its newest attempts failed: something is broken, and trying on would only use up its
-- tasks. rules is {max_attempts, window, rate}.
local function judge(run, ends, rules)
  local length = redis.call('LPUSH', key('window', run), unpack(ends))
  if length > rules.window then
    redis.call('LTRIM', key('window', run), 0, rules.window - 1)
  end
  if not ends.why or length < rules.window then
    return
  end
  local num = num_failed(run, rules.window)
  if num > rules.rate * rules.window then
    local why = string.format('%d of the newest %d attempts failed, more than stop_failure_rate (%g) allows; the last: %s',
      num, rules.window, rules.rate, ends.why)
    if redis.call('HSETNX', key('paused_runs'), run, why) == 1 then
      redis.call('HSET', key('book', run), 'is_failing', 1)
    end
  end
end

local function write_times(run, times)
  local name = key('took', run)
  local has_room = redis.call('HLEN', name) < MAX_TASKS
  for task_id, ms in pairs(times) do
    local before = tonumber(redis.call('HGET', name, task_id) or nil)
    if before or has_room then
      redis.call('HSET', name, task_id, math.floor(before and (before + ms) / 2 or ms))
    end
  end
end

local function write_run_stats(rules)
  for run, counts in pairs(counted) do
    write_counts(run, counts)
    if counts.accepted then
      count_minute(run, counts.accepted)
    end
    local num_ended = -(counts.leased or 0)
    if num_ended > 0 and redis.call('HEXISTS', key('book', run), 'quota') == 1 then -- it may have been at its quota
      index_run(run, num_ended)
    end
  end
  for run, ends in pairs(ended) do
    judge(run, ends, rules)
  end
  for run, times in pairs(took) do
    write_times(run, times)
  end
end
