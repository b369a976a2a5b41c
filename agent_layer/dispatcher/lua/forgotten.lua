-- Decisions that the index knows and this server has forgotten. They stand: nothing is decided a second time.

-- The attempt that counts; nil where the index knows none. Only what was tried again, or had its number before the
-- server changed, can have one.
local function find_accepted(rollout, held)
  local newest = held.attempts - 1
  if newest == 0 and held.server == SERVER_CHANGE then
    return nil
  end
  for attempt = newest, 0, -1 do
    if redis.call('HGET', STORED_TRAJECTORY .. trajectory_id(rollout, attempt), 'accepted') then
      return attempt
    end
  end
end

-- Close a group whose record is stored: its members are the accepted ones, all others are cancelled.
local function adopt_group(name)
  local group = read_group(name)
  for _, id in ipairs(cmsgpack.unpack(redis.call('GET', STORED_GROUP .. name)).trajectory_ids or {}) do
    local rollout, attempt = id:match('^(.*)-(%d+)$')
    local held = read_fields(key('r', rollout), CANCEL_FIELDS)
    if held.status and not FINAL[held.status] then
      withdraw(rollout, held)
      redis.call('HSET', key('r', rollout), 'status', 'completed', 'at', AT, 'token', '', 'accepted', attempt)
      group.open = group.open - 1
    end
  end
  begin_closing(group, 'cancelled')
end

-- Finish a rollout by the attempt that was accepted.
local function adopt_rollout(rollout, held, attempt)
  local group = read_group(held.group)
  end_lease(rollout, held.run)
  count(held.run, 'accepted')
  if redis.call('HGET', STORED_TRAJECTORY .. trajectory_id(rollout, attempt), 'reward') then
    group.usable = group.usable + 1
  else
    count(held.run, 'unusable')
  end
  finish(rollout, held.status, 'completed', group, 'accepted', attempt, 'token', '')
  close_if_enough(group)
end

-- Let a decision about a leased rollout stand; return whether there is one.
local function adopt(rollout, held)
  if FINAL[held.status] then -- with its group, a moment ago
    return true
  end
  if read_group(held.group).state == 'open' and redis.call('EXISTS', STORED_GROUP .. held.group) == 1 then
    adopt_group(held.group)
    return true
  end
  local attempt = find_accepted(rollout, held)
  if attempt then
    adopt_rollout(rollout, held, attempt)
  end
  return attempt ~= nil
end
