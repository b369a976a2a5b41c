-- Show what the dispatcher holds. Writes nothing.
--
-- ARGV: what, then its arguments:
--   groups    limit, group ids (none: the open ones, oldest first)
--   rollouts  limit of groups, group ids (none: those of the open ones)
--   dead      limit
--   workers, stats
-- Returns msgpack: a list of maps, for stats one map. Times are seconds.

local function hash(name)
  local flat, map = redis.call('HGETALL', name), {}
  for at = 1, #flat, 2 do
    map[flat[at]] = flat[at + 1]
  end
  return map
end

local function at(milliseconds)
  return milliseconds and milliseconds / 1000 or nil
end

local function errors_of(fields)
  local errors = {}
  for attempt = 0, tonumber(fields.attempts) - 1 do
    errors[#errors + 1] = fields['error:' .. attempt]
  end
  return errors
end

local function rollout_state(rollout)
  local fields = hash(key('r', rollout))
  if not fields.group then
    return nil
  end
  return { rollout_id = rollout, group_id = fields.group, status = fields.status, worker = fields.worker,
    num_attempts = tonumber(fields.attempts), num_failures = tonumber(fields.failures),
    accepted = tonumber(fields.accepted), since = at(fields.at or fields.queued_at), errors = errors_of(fields) }
end

local function group_state(group)
  local fields = hash(key('g', group))
  if not fields.run then
    return nil
  end
  return { group_id = group, run = fields.run, task_id = fields.task_id, task_type = fields.task_type,
    split = fields.split, group_size = tonumber(fields.group_size), num_open = tonumber(fields.open),
    is_closed = fields.state == 'closed', num_accepted = tonumber(fields.num_accepted),
    queued_at = at(fields.queued_at), closed_at = at(fields.closed_at) }
end

local function each(ids, show)
  local found = {}
  for _, id in ipairs(ids) do
    found[#found + 1] = show(id)
  end
  return found
end

local function groups_asked()
  local asked = {}
  for at = 3, #ARGV do
    asked[#asked + 1] = ARGV[at]
  end
  return #asked > 0 and asked or redis.call('ZRANGE', key('open'), 0, ARGV[2] - 1)
end

local function worker_state(worker)
  local seen = redis.call('ZSCORE', key('workers'), worker)
  return { worker = worker, seen_at = at(seen), silent_seconds = (NOW - seen) / 1000,
    about = cjson.decode(redis.call('HGET', key('worker'), worker)) }
end

local look = {}

function look.groups()
  return each(groups_asked(), group_state)
end

function look.rollouts()
  local rollouts = {}
  for _, group in ipairs(groups_asked()) do
    for member = 0, (redis.call('HGET', key('g', group), 'group_size') or 0) - 1 do
      rollouts[#rollouts + 1] = group .. '.' .. member
    end
  end
  return each(rollouts, rollout_state)
end

function look.workers()
  return each(redis.call('ZRANGE', key('workers'), 0, -1), worker_state)
end

function look.dead()
  return each(redis.call('ZREVRANGE', key('dead'), 0, ARGV[2] - 1), rollout_state)
end

function look.stats()
  local queued = 0
  for _, name in ipairs(redis.call('SMEMBERS', key('ready'))) do
    queued = queued + redis.call('ZCARD', key('ready', name))
  end
  return { num_queued = queued, num_delayed = redis.call('ZCARD', key('delayed')),
    num_leased = redis.call('ZCARD', key('leases')), num_dead = redis.call('ZCARD', key('dead')),
    num_open_groups = redis.call('ZCARD', key('open')), paused_runs = redis.call('SMEMBERS', key('paused')) }
end

return cmsgpack.pack(look[ARGV[1]]())
