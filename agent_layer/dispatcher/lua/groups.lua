-- Groups: launched, filled up again, and decided.
--
-- A group may have thousands of members. A script launches or closes as many as its budget allows; other scripts go on
-- where it stopped (closing.lua), of any caller. To all readers the group has its members, and is decided, at once:
-- 'open' counts members that are not filled yet, and a group that is closing leases and accepts nothing.
--
-- Several members of a group often end in one script: each group is read once and written once.

local MAX_REFILLS = 3 -- times that a group is filled up again before it is decided as it is
local COUNTED = { 'launched', 'open', 'usable', 'num_refills', 'kept_ms', 'num_cut', 'cut_ms', 'unfilled', 'swept', 'num_dead' }
local CHANGING = { 'state', 'cut', 'base', 'step', unpack(COUNTED) }
local FIELDS_OF_GROUP = { 'run', 'task_id', 'task_type', 'split', 'partial', 'ready', 'group_size', unpack(CHANGING) }
local budget = 150 -- rollouts that a script still launches or looks at, so that none holds up the server; a cancel counts more
local read, before = {}, {}
local closing = {} -- groups that are closed next, in this order

local function read_group(name)
  if not read[name] then
    local group, found = read_fields(key('g', name), FIELDS_OF_GROUP), {}
    for _, field in ipairs(COUNTED) do
      group[field] = tonumber(group[field] or 0)
    end
    for _, field in ipairs(CHANGING) do
      found[field] = group[field]
    end
    group.group_size, group.name = tonumber(group.group_size), name
    read[name], before[name] = group, found
  end
  return read[name]
end

-- Whether more is to be done for a group than one script does.
local function is_unfinished(group)
  return group.unfilled > 0 or group.state == 'closing'
end

local function write_groups()
  for name, group in pairs(read) do
    if is_unfinished(group) and not is_unfinished(before[name]) then
      redis.call('SADD', key('unfinished'), name)
    elseif is_unfinished(before[name]) and not is_unfinished(group) then
      redis.call('SREM', key('unfinished'), name)
    end
    if group.unfilled ~= before[name].unfilled then
      redis.call('INCRBY', key('num_unfilled'), group.unfilled - before[name].unfilled)
    end
    local changes = {}
    for _, field in ipairs(CHANGING) do
      if group[field] ~= before[name][field] then
        changes[#changes + 1] = field
        changes[#changes + 1] = group[field] or ''
      end
    end
    if #changes > 0 then
      redis.call('HSET', key('g', name), unpack(changes))
    end
  end
end

-- Make rollouts claimable that were launched, as many as there is budget for.
local function fill(group)
  local places, first = {}, group.launched - group.unfilled
  local num = math.max(0, math.min(group.unfilled, math.floor(budget))) -- a sweep before it spends parts, and too much
  for member = first, first + num - 1 do
    local rollout, score = group.name .. '.' .. member, group.base + member * group.step -- as schema.ids.make_rollout_id
    move(rollout, 'new', 'queued', 'queued_at', AT, 'group', group.name, 'run', group.run, 'ready', group.ready,
      'score', score, 'attempts', 0, 'failures', 0, 'server', SERVER_CHANGE)
    places[#places + 1], places[#places + 2] = score, rollout
  end
  budget, group.unfilled = budget - num, group.unfilled - num
  if group.unfilled == 0 then
    group.base, group.step = nil, nil
  end
  if num > 0 and group.state == 'open' then
    enter_all(group.ready, places)
  end
end

-- Launch rollouts of a group; a member's place in the order is base + member * step.
local function launch(group, num, base, step)
  group.launched, group.open, group.unfilled = group.launched + num, group.open + num, num
  group.base, group.step = base, step
  fill(group)
end

-- Launch as many again as are missing, as soon as it is clear that too few will be usable.
local function refill(group)
  if group.partial ~= 'refill' or group.state ~= 'open' or group.unfilled > 0 then
    return
  end
  local missing = group.group_size - group.usable - group.open
  if missing > 0 and group.num_refills < MAX_REFILLS then
    group.num_refills = group.num_refills + 1
    local first = redis.call('HGET', key('r', group.name .. '.0'), 'score') -- the others have waited long enough
    launch(group, missing, tonumber(first), 1 / 8192) -- a group has fewer
  end
end

-- Decide a group: nothing of it is leased or accepted any more, and the rest is cancelled for this reason.
local function begin_closing(group, why)
  group.state, group.cut = 'closing', why
  closing[#closing + 1] = group
end

-- Close a group that has as many usable rollouts as were asked for; the others are surplus.
local function close_if_enough(group)
  if group.usable >= group.group_size and group.state == 'open' then
    begin_closing(group, 'surplus')
  end
end

-- Set the final status of a rollout; the last one of a group closes the group.
local function finish(rollout, from, to, group, ...)
  move(rollout, from, to, 'at', AT, ...)
  group.open = group.open - 1
  refill(group)
  if group.open == 0 and group.state == 'open' then
    begin_closing(group, '')
  end
end
