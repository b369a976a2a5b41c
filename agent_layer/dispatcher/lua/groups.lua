-- Groups: launched, filled up again, rid of their surplus, and written to the outbox when they close.
--
-- Several members of a group often end in one script: each group is read once and written once.

local MAX_REFILLS = 3 -- times that a group is filled up again before it is decided as it is
local CHANGING = { 'launched', 'open', 'usable', 'num_refills', 'kept_ms', 'num_cut', 'cut_ms', 'state' }
local FIELDS_OF_GROUP = { 'run', 'task_id', 'task_type', 'split', 'partial', 'ready', 'group_size', unpack(CHANGING) }
local read, before = {}, {}

local function read_group(name)
  if not read[name] then
    local group, found = read_fields(key('g', name), FIELDS_OF_GROUP), {}
    for _, field in ipairs(CHANGING) do
      group[field] = field == 'state' and group.state or tonumber(group[field] or 0)
      found[field] = group[field]
    end
    group.group_size, group.name = tonumber(group.group_size), name
    read[name], before[name] = group, found
  end
  return read[name]
end

local function write_groups()
  for name, group in pairs(read) do
    local changes = {}
    for _, field in ipairs(CHANGING) do
      if group[field] ~= before[name][field] then
        changes[#changes + 1] = field
        changes[#changes + 1] = group[field]
      end
    end
    if #changes > 0 then
      redis.call('HSET', key('g', name), unpack(changes))
    end
  end
end

-- Make rollouts of a group claimable. find_score gives the place of each member in the order.
local function launch(group, num, find_score)
  local places = {}
  for member = group.launched, group.launched + num - 1 do
    local rollout, score = group.name .. '.' .. member, find_score(member) -- as schema.ids.make_rollout_id
    move(rollout, 'new', 'queued', 'queued_at', AT, 'group', group.name, 'run', group.run, 'ready', group.ready,
      'score', score, 'attempts', 0, 'failures', 0)
    places[#places + 1], places[#places + 2] = score, rollout
  end
  enter_all(group.ready, places)
  group.launched, group.open = group.launched + num, group.open + num
end

local function list_members(group)
  local accepted, num_dead = {}, 0
  for member = 0, group.launched - 1 do
    local rollout = group.name .. '.' .. member
    local r = key('r', rollout)
    local status, attempt = unpack(redis.call('HMGET', r, 'status', 'accepted'))
    if attempt then
      accepted[#accepted + 1] = trajectory_id(rollout, attempt)
    end
    if status == 'dead' and redis.call('ZSCORE', key('dead'), rollout) then
      num_dead = num_dead + 1
    else
      redis.call('EXPIRE', r, KEEP_SECONDS)
    end
  end
  return accepted, num_dead
end

local function mean(total, num)
  return num > 0 and seconds(total / num) or ''
end

-- Note how long its usable attempts took, and how long its surplus had run when it was cut off: the two show the bias
-- of taking what ends first.
local function note_times(group)
  if group.usable > 0 then
    note_time(group.run, group.task_id, group.kept_ms / group.usable)
  end
  if group.num_cut > 0 then
    count(group.run, 'num_kept', group.usable)
    count(group.run, 'kept_ms', group.kept_ms)
    count(group.run, 'num_cut', group.num_cut)
    count(group.run, 'cut_ms', group.cut_ms)
  end
end

local function write_record(group, members, fill)
  redis.call('XADD', OUTBOX, '*', 'kind', 'group', 'group_id', group.name, 'run', group.run, 'task_id', group.task_id,
    'task_type', group.task_type, 'split', group.split, 'group_size', group.group_size, 'at', now_of_day(),
    'members', fill == 'dropped' and '' or table.concat(members, ','), 'num_launched', group.launched,
    'num_usable', group.usable, 'fill', fill, 'num_surplus', group.num_cut,
    'kept_seconds', mean(group.kept_ms, group.usable), 'surplus_seconds', mean(group.cut_ms, group.num_cut))
end

-- Write the group down, for good: its members are the accepted attempts, in member order. A record that is stored stands.
local function close_group(group)
  local g = key('g', group.name)
  local members, num_dead = list_members(group)
  local is_short = group.usable < group.group_size
  local fill = not is_short and 'whole' or group.partial == 'drop' and 'dropped' or 'short'
  if redis.call('EXISTS', STORED_GROUP .. group.name) == 0 then
    write_record(group, members, fill)
  end
  redis.call('HSET', g, 'closed_at', AT, 'num_accepted', #members, 'fill', fill, 'num_dead', num_dead)
  if num_dead == 0 then -- a dead rollout needs its task to be tried again
    forget_group(g)
  end
  redis.call('ZREM', key('open'), group.name)
  redis.call('XADD', key('closed'), 'MAXLEN', '~', 1024, '*', 'group_id', group.name, 'run', group.run)
  group.state = 'closed'
  note_times(group)
end

-- Launch as many again as are missing, as soon as it is clear that too few will be usable.
local function refill(group)
  local missing = group.group_size - group.usable - group.open
  if missing > 0 and group.num_refills < MAX_REFILLS then
    group.num_refills = group.num_refills + 1
    local place = redis.call('HGET', key('r', group.name .. '.0'), 'score') -- the others have waited long enough
    launch(group, missing, function(member)
      return place + member / 8192 -- more than a group may have
    end)
  end
end

-- Set the final status of a rollout; the last one of a group closes the group.
local function finish(rollout, from, to, group, ...)
  move(rollout, from, to, 'at', AT, ...)
  group.open = group.open - 1
  if group.partial == 'refill' and group.state == 'open' then
    refill(group)
  end
  if group.open == 0 then
    close_group(group)
  end
end
