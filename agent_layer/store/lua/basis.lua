-- What the reward of a trajectory follows from. Stands behind blocks.lua.
local NOTHING_SAID = '||0' -- mark of one that was deleted

-- {id, mark, declared, ended, status, cause, reward, reward, ...}; '' is not known. The mark changes with what follows.
local function basis_of(id)
  local row = key('t', id)
  local opened, ended, declared, status, cause =
    unpack(redis.call('HMGET', row, 'opened', 'ended', 'declared', 'status', 'cause'))
  local rewards = redis.call('HVALS', row .. ':rewards')
  local mark = (opened or '') .. '|' .. (ended or '') .. '|' .. #rewards
  local basis = {id, mark, declared or '', ended or '', status or '', cause or ''}
  for _, reward in ipairs(rewards) do basis[#basis + 1] = reward end -- unpack knows no thousands
  return basis
end

