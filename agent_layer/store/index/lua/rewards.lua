-- Write rewards that the caller computed from a basis, unless the basis has changed since.
-- Preludes: keys.lua, prelude.lua, events.lua, reward_basis.lua.
-- ARGV: trajectory id, mark of the basis, reward ('' for null); and so on.
-- Returns the current bases (see reward_basis.lua) of those whose mark has changed.
local growing = {}
local function enter(id, reward, has_ended)
  local row = key('t', id)
  local ordinal, known = unpack(redis.call('HMGET', row, 'ordinal', 'reward'))
  if reward == (known or '') then return end
  if reward == '' then redis.call('HDEL', row, 'reward') else redis.call('HSET', row, 'reward', reward) end
  if ordinal then
    local block, at = find_place(ordinal)
    write_reward(block, at, known and tonumber(known), tonumber(reward))
  end
  local run = redis.call('HGET', row, 'run') or ''
  if has_ended then
    announce('kind', 'addition', 'trajectory_id', id, 'run', run)
  else
    growing[#growing + 1] = {id, run}
  end
end

local changed = {}
for i = 1, #ARGV, 3 do
  local id, mark, reward = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local basis = read_basis(id)
  if basis[2] == mark then
    enter(id, reward, basis[4] ~= '')
  elseif basis[2] ~= NO_BASIS then
    changed[#changed + 1] = basis
  end
end
announce_growth(growing)
keep_zones()
return changed
