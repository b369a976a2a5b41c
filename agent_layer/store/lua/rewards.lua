-- Enter rewards that were worked out from what the index held, unless that has changed meanwhile.
-- ARGV: trajectory id, mark of what the reward followed from, reward ('' for null); and so on. Stands behind blocks.lua.
-- Returns the bases (see commit.lua) of those whose mark has changed.
local NUM_EVENTS_KEPT = 10000
local changed = {}
for i = 1, #ARGV, 3 do
  local id, mark, reward = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local row = key('t', id)
  local opened, ended, declared, status, cause, ordinal, known =
    unpack(redis.call('HMGET', row, 'opened', 'ended', 'declared', 'status', 'cause', 'ordinal', 'reward'))
  local rewards = redis.call('HVALS', key('t', id, 'rewards'))
  local now = (opened or '') .. '|' .. (ended or '') .. '|' .. #rewards
  if not (opened or ended) and #rewards == 0 then -- deleted
  elseif mark ~= now then
    changed[#changed + 1] = join({id, now, declared or '', ended or '', status or '', cause or ''}, rewards)
  elseif reward ~= (known or '') then
    if reward == '' then redis.call('HDEL', row, 'reward') else redis.call('HSET', row, 'reward', reward) end
    if ordinal then
      local block, at = place_of(ordinal)
      write_reward(block, at, known and tonumber(known), tonumber(reward))
    end
    if ended then
      redis.call('XADD', key('events'), 'MAXLEN', '~', NUM_EVENTS_KEPT, '*', 'kind', 'addition', 'trajectory_id', id)
    end
  end
end
keep_zones()
return changed
