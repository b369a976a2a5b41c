-- Which of some trajectories are not filed under what their rows say; reads only. Stands behind blocks.lua.
-- ARGV: trajectory ids. Returns ids.
local function is_filed(id)
  local row = key('t', id)
  local filed, ordinal = read_filed(row), redis.call('HGET', row, 'ordinal')
  if not filed.started_at then return not ordinal end
  if not ordinal then return false end
  local block, at = place_of(ordinal)
  if redis.call('HGET', ids_key(block, at), at) ~= id then return false end
  for name in pairs(names_of(filed)) do
    if redis.call('GETBIT', key('b', block, name), at) == 0 or redis.call('GETBIT', key('v', name), block) == 0 then
      return false
    end
  end
  if redis.call('GETBIT', key('b', block, 'rewarded'), at) ~= (filed.reward and 1 or 0) then return false end
  if filed.reward and redis.call('GETBIT', key('b', block, 'bucket=' .. bucket_of(tonumber(filed.reward))), at) == 0 then
    return false
  end
  local ends = redis.call('HGET', key('zones'), block)
  ends = ends and {struct.unpack(ENDS, ends)}
  for i, column in ipairs(COLUMNS) do
    local stored = redis.call('GETRANGE', key('b', block, column), 8 * at, 8 * at + 7)
    local found = #stored == 8 and struct.unpack('<d', stored) or NOT_KNOWN
    local wanted = tonumber(filed[column])
    if wanted and not (found == wanted and ends and ends[2 * i - 1] <= wanted and wanted <= ends[2 * i]) then
      return false
    end
    if not wanted and found == found then return false end
  end
  return true
end

local misfiled = {}
for _, id in ipairs(ARGV) do
  if not is_filed(id) then misfiled[#misfiled + 1] = id end
end
return misfiled
