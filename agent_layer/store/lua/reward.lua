-- Enter rewards that were worked out from what the index held, unless that has changed meanwhile.
-- KEYS[1]: prefix of the namespace. ARGV: trajectory id, basis of the reward, reward ('' for null); and so on.
-- Returns the ids of those whose basis has changed.
local function key(...)
  return table.concat({KEYS[1], ...}, ':')
end

local NUM_EVENTS_KEPT = 10000
local changed = {}
for i = 1, #ARGV, 3 do
  local id, basis, reward = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local row = key('t', id)
  local opened, ended, known = unpack(redis.call('HMGET', row, 'opened', 'ended', 'reward'))
  if basis ~= (opened or '') .. '|' .. (ended or '') .. '|' .. redis.call('HLEN', key('t', id, 'rewards')) then
    changed[#changed + 1] = id
  elseif reward == (known or '') then -- nothing new
  elseif reward == '' then
    redis.call('HDEL', row, 'reward')
    redis.call('ZREM', key('ix', 'reward'), id)
  else
    redis.call('HSET', row, 'reward', reward)
    redis.call('ZADD', key('ix', 'reward'), reward, id)
  end
  if ended and reward ~= (known or '') then
    redis.call('XADD', key('events'), 'MAXLEN', '~', NUM_EVENTS_KEPT, '*', 'kind', 'addition', 'trajectory_id', id)
  end
end
return changed
