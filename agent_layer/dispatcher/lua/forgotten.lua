-- Decisions that the index knows and this server has forgotten. They stand: nothing is decided a second time.

local records = {} -- group → its stored record; false: none is stored
local listed = {} -- group → whether the index lists accepted attempts of it

local function read_record(name)
  if records[name] == nil then
    local stored = redis.call('GET', STORED_GROUP .. name)
    records[name] = stored and cmsgpack.unpack(stored)
  end
  return records[name]
end

local function list_of_accepted(name) -- see store/index/lua/accepted.lua
  return STORED_GROUP .. name .. '/accepted'
end

-- The attempt at a rollout among trajectories in member order.
local function find_member(ids, rollout)
  local first, last, wanted = 1, #ids, tonumber(rollout:match('%d+$'))
  while first <= last do
    local middle = math.floor((first + last) / 2)
    local member, attempt = ids[middle]:match('(%d+)%-(%d+)$')
    if tonumber(member) == wanted then
      return ids[middle] == trajectory_id(rollout, attempt) and attempt or nil
    elseif tonumber(member or 0) < wanted then
      first = middle + 1
    else
      last = middle - 1
    end
  end
end

-- The attempt that counts; nil where the index knows none. Where the group has a record, that alone says so.
local function find_accepted(rollout, name)
  local record = read_record(name)
  if record then
    return find_member(record.trajectory_ids or {}, rollout)
  end
  if listed[name] == nil then
    listed[name] = redis.call('HLEN', list_of_accepted(name)) > 0
  end
  local attempt = listed[name] and redis.call('HGET', list_of_accepted(name), rollout)
  local is_live = attempt and redis.call('HEXISTS', STORED_TRAJECTORY .. trajectory_id(rollout, attempt), 'accepted') == 1
  return is_live and attempt or nil
end

local function has_reward(rollout, attempt)
  return redis.call('HEXISTS', STORED_TRAJECTORY .. trajectory_id(rollout, attempt), 'reward') == 1
end

local function count_adopted(rollout, attempt, group)
  count(group.run, 'accepted')
  if has_reward(rollout, attempt) then
    group.usable = group.usable + 1
  else
    count(group.run, 'unusable')
  end
end

-- Finish a rollout that is not final by the attempt that was accepted, whatever it does now.
local function adopt(rollout, held, attempt, group)
  withdraw(rollout, held, attempt)
  count_adopted(rollout, attempt, group)
  finish(rollout, 'leased', 'completed', group, 'accepted', attempt, 'token', '') -- as if it were: that lease is forgotten
  close_if_enough(group)
end

-- End a rollout that is not final where the index knows what becomes of it, or its group is closing; return whether it
-- ended, and the attempt that was accepted.
local function end_decided(rollout, held)
  local group = read_group(held.group)
  if group.state == 'open' and read_record(group.name) then
    begin_closing(group, 'cancelled')
  end
  local attempt = find_accepted(rollout, group.name)
  if attempt then
    adopt(rollout, held, attempt, group)
  elseif group.state ~= 'open' then
    cancel(rollout, held, group.cut)
  end
  return attempt or group.state ~= 'open', attempt
end

-- Accepted attempts of rollouts that this server does not know: it forgot that it filled the group up.
local function find_strays(group)
  local strays = {}
  if group.partial ~= 'refill' or read_record(group.name) then
    return strays
  end
  local rollouts = {}
  for _, rollout in ipairs(redis.call('HKEYS', list_of_accepted(group.name))) do
    local member = tonumber(rollout:match('%d+$'))
    if member >= group.launched then
      rollouts[#rollouts + 1] = { member, rollout }
    end
  end
  table.sort(rollouts, function(one, other) return one[1] < other[1] end)
  for _, one in ipairs(rollouts) do
    local attempt = find_accepted(one[2], group.name)
    if attempt then
      count_adopted(one[2], attempt, group)
      strays[#strays + 1] = trajectory_id(one[2], attempt)
    end
  end
  return strays
end
