-- Closing groups: rid of their surplus and written to the outbox, a slice at a time.

local COST_OF_CANCEL = 3 -- beside launching a rollout, or looking at one
local MAX_UNFINISHED = 16 -- groups that one script goes on with
local continued = {} -- those that other scripts have begun

-- Groups that wait for other scripts to go on with them.
local function num_unfinished()
  return redis.call('SCARD', key('unfinished'))
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

-- Show what the stored record says, whatever this server knows; return how the group was filled, and its members.
local function adopt_record(group, record, fill, num_accepted)
  group.usable = record.num_usable or group.usable
  group.kept_ms = record.kept_seconds and 1000 * record.kept_seconds * group.usable or group.kept_ms
  if record.fill == 'dropped' then
    return 'dropped', num_accepted
  end
  return record.fill or fill, #(record.trajectory_ids or {})
end

-- Write the group down, for good: its members are the accepted attempts, in member order. A record that is stored stands.
local function close_group(group, members)
  local g = key('g', group.name)
  local is_short = group.usable < group.group_size
  local fill = not is_short and 'whole' or group.partial == 'drop' and 'dropped' or 'short'
  local stored, num_accepted = read_record(group.name), #members
  if stored then
    fill, num_accepted = adopt_record(group, stored, fill, num_accepted)
  else
    write_record(group, members, fill)
  end
  redis.call('HSET', g, 'closed_at', AT, 'num_accepted', num_accepted, 'fill', fill)
  if group.num_dead == 0 then -- a dead rollout needs its task to be tried again
    forget_group(g)
  end
  redis.call('ZREM', key('open'), group.name)
  redis.call('XADD', key('closed'), 'MAXLEN', '~', 1024, '*', 'group_id', group.name, 'run', group.run)
  group.state, group.cut, group.swept = 'closed', nil, 0
  note_times(group)
end

-- Go through the members in their order: end what is not final, note what was accepted. After the last, close.
local function sweep(group)
  local accepted, list = {}, key('members', group.name)
  local is_begun = group.swept > 0
  while group.swept < group.launched and budget > 0 do
    local rollout = group.name .. '.' .. group.swept
    local r = key('r', rollout)
    local status, attempt = unpack(redis.call('HMGET', r, 'status', 'accepted'))
    if status and not FINAL[status] then
      local _, adopted = end_decided(rollout, read_fields(r, HELD_FIELDS))
      attempt, budget = adopted, budget - COST_OF_CANCEL
    end
    if attempt then
      accepted[#accepted + 1] = trajectory_id(rollout, attempt)
    end
    if status == 'dead' and redis.call('ZSCORE', key('dead'), rollout) then
      group.num_dead = group.num_dead + 1
    else
      redis.call('EXPIRE', r, KEEP_SECONDS)
    end
    budget, group.swept = budget - 0.3, group.swept + 1
  end
  local is_over = group.swept >= group.launched
  for _, id in ipairs(is_over and find_strays(group) or {}) do
    accepted[#accepted + 1] = id
  end
  if #accepted > 0 and (is_begun or not is_over) then
    redis.call('RPUSH', list, unpack(accepted))
  end
  if is_over and is_begun then
    accepted = redis.call('LRANGE', list, 0, -1)
    redis.call('DEL', list)
  end
  if is_over then
    close_group(group, accepted)
  end
end

local function continue_group(group)
  if group.unfilled > 0 then
    fill(group)
    refill(group)
  end
  if group.state == 'closing' and group.unfilled == 0 then
    sweep(group)
  end
end

-- Go on with what this script has begun, in that order, then with what it has taken up.
local function continue_groups()
  for _, group in ipairs(closing) do
    continue_group(group)
  end
  for _, group in ipairs(continued) do
    continue_group(group)
  end
end

-- Take up what other scripts have begun.
local function take_up_groups()
  for _, name in ipairs(redis.call('SRANDMEMBER', key('unfinished'), MAX_UNFINISHED)) do
    local group = read_group(name)
    if is_unfinished(group) then
      continued[#continued + 1] = group
    else -- one that this server knows no more, or another version finished
      redis.call('SREM', key('unfinished'), name)
    end
  end
end

-- Write what a script changed of leases, groups and runs; once, at its end.
local function write_all(rules)
  continue_groups()
  flush_removals()
  write_groups()
  write_run_stats(rules)
  wake()
end
