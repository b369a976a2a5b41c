-- Show what the dispatcher holds. Writes nothing. Callers ask for small pages, so that no call holds up the server.
--
-- ARGV: what, then its arguments:
--   groups    group ids
--   rollouts  rollout ids
--   dead      rollout ids: those of them that were given up
--   tally     group ids: how many of each one's rollouts have which status
--   open      cursor ('0' at first), num, run or '': ids of open groups, oldest first
--   listed    'leases', 'delayed', 'paused' or 'dead', cursor, num, run or '': ids of rollouts; what is due first comes
--             first, of the dead the newest
--   task      group id: the task as it was added, or nothing
--   runs      cursor, num: runs by name; or '', then names
--   workers   cursor, num: longest silent first
--   closed    num: ids of the groups that closed last, newest first
--   needs     run or '': {what is needed, separated by commas, how many wait with that}
--   stats
-- Returns msgpack: for stats one map, for a task its bytes; for open, listed, runs and workers {rows, cursor of the next
-- page or nothing}; else a list. Of a run, num is how many are looked at, not how many are found. Times are seconds.

local function each(ids, show)
  local found = {}
  for _, id in ipairs(ids) do
    found[#found + 1] = show(id)
  end
  return found
end

local function arguments()
  return { unpack(ARGV, 2) }
end

local look = {}

function look.groups()
  return each(arguments(), group_state)
end

function look.rollouts()
  return each(arguments(), rollout_state)
end

local function is_dead(rollout)
  return redis.call('ZSCORE', key('dead'), rollout) and rollout_state(rollout) or nil
end

function look.dead()
  return each(arguments(), is_dead)
end

function look.task()
  return redis.call('HGET', key('g', ARGV[2]), 'task') or ''
end

local function filter_run(run, kind, ids)
  return run == '' and ids or each(ids, function(id)
    return redis.call('HGET', key(kind, id), 'run') == run and id or nil
  end)
end

function look.open()
  local num, ids = tonumber(ARGV[3]), {}
  local found = redis.call('ZRANGEBYSCORE', key('open'), '(' .. ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0, num)
  for at = 1, #found, 2 do
    ids[#ids + 1] = found[at]
  end
  return { filter_run(ARGV[4], 'g', ids), #ids == num and found[#found] or '' }
end

-- Where the page after this one begins, if this one is full.
local function next_cursor(page, from, num)
  return #page == num and string.format('%d', from + num) or ''
end

function look.listed()
  local from, num = tonumber(ARGV[3]), tonumber(ARGV[4])
  local ids = redis.call(ARGV[2] == 'dead' and 'ZREVRANGE' or 'ZRANGE', key(ARGV[2]), from, from + num - 1)
  return { filter_run(ARGV[5], 'r', ids), next_cursor(ids, from, num) }
end

function look.closed()
  return each(redis.call('XREVRANGE', key('closed'), '+', '-', 'COUNT', ARGV[2]), function(entry)
    return entry[2][2]
  end)
end

function look.workers()
  local from, num = tonumber(ARGV[2]), tonumber(ARGV[3])
  local names = redis.call('ZRANGE', key('workers'), from, from + num - 1)
  return { each(names, worker_state), next_cursor(names, from, num) }
end

function look.tally()
  return each(arguments(), function(group)
    local counts, fields = {}, read_fields(key('g', group), { 'launched', 'unfilled' })
    for member = 0, number(fields.launched) - 1 do
      local status = is_unfilled(fields, member) and 'queued'
        or redis.call('HGET', key('r', group .. '.' .. member), 'status') or 'forgotten'
      counts[status] = (counts[status] or 0) + 1
    end
    return counts
  end)
end

local function requested_runs()
  if ARGV[2] == '' then
    return { unpack(ARGV, 3) }, ''
  end
  local names, from, num = redis.call('SMEMBERS', key('runs')), tonumber(ARGV[2]), tonumber(ARGV[3])
  table.sort(names)
  local page = { unpack(names, from + 1, math.min(#names, from + num)) }
  return page, next_cursor(page, from, num)
end

function look.runs()
  local names, cursor = requested_runs()
  local delayed, paused = members_by_run('delayed'), members_by_run('paused')
  local states = each(names, function(run)
    local book = hash(key('book', run))
    return book.weight and run_state(run, book, delayed, paused) or nil
  end)
  return { states, cursor }
end

function look.needs()
  local found = {}
  for needs, num in pairs(ARGV[2] == '' and waiting_of_all() or waiting_of_run(ARGV[2])) do
    found[#found + 1] = num > 0 and { needs, num } or nil
  end
  return found
end

function look.stats()
  local queued = sum(waiting_of_all()) + number(redis.call('GET', key('num_unfilled')) or nil)
  local num_paused = redis.call('ZCARD', key('paused'))
  return { now = at(NOW), num_queued = queued - num_paused, num_delayed = redis.call('ZCARD', key('delayed')), num_paused = num_paused,
    num_leased = redis.call('ZCARD', key('leases')), num_dead = redis.call('ZCARD', key('dead')),
    num_open_groups = redis.call('ZCARD', key('open')), paused_runs = redis.call('HKEYS', key('paused_runs')) }
end

local shown = look[ARGV[1]]()
return type(shown) == 'table' and cmsgpack.pack(shown) or shown
