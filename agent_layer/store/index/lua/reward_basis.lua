-- The fields that determine the reward of a trajectory. Comes after prelude.lua.
local NO_BASIS = '||0' -- mark of a deleted trajectory

-- {id, mark, declared, ended, status, cause, reward, reward, ...}; '' is unknown. The mark changes with the rest.
local function read_basis(id)
  local row = key('t', id)
  local opened, ended, declared, status, cause =
    unpack(redis.call('HMGET', row, 'opened', 'ended', 'declared', 'status', 'cause'))
  local rewards = redis.call('HVALS', row .. ':rewards')
  local mark = (opened or '') .. '|' .. (ended or '') .. '|' .. #rewards
  local basis = {id, mark, declared or '', ended or '', status or '', cause or ''}
  for _, reward in ipairs(rewards) do basis[#basis + 1] = reward end -- unpack knows no thousands
  return basis
end

