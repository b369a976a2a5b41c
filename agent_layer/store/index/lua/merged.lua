-- Whether a segment was merged into another one. Comes after keys.lua.
--
-- A process that read a segment before the merge may commit it afterwards. Its object is then gone, or about to go.
local MAX_CHAIN_LENGTH = 100

-- Whether 'segment' was merged into one that 'is_here' accepts.
local function was_merged(segment, is_here)
  local name = redis.call('GET', key('replaced', segment))
  for _ = 1, MAX_CHAIN_LENGTH do
    if not name then return false end
    if name == '' or is_here(name) then return true end
    name = redis.call('GET', key('replaced', name))
  end
  return false
end
