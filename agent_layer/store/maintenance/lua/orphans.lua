-- Orphan bits: bits of a bitmap without a row behind them. They remain when a lost row is indexed again elsewhere, and
-- searches count them.
-- Preludes: keys.lua, prelude.lua.
-- ARGV: block, which IDS_TOGETHER of its members, '1' to clear the bits, then names of bitmaps of the block.
-- Returns their number.
local block, part, clears = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
local first = part * IDS_TOGETHER

local names_at = {} -- position → what its row is filed under
local ids = redis.call('HGETALL', ids_key(block, first))
for i = 1, #ids, 2 do
  local at, filed = tonumber(ids[i]), read_filed(key('t', ids[i + 1]))
  if tonumber(filed.ordinal) == block * BLOCK + at then
    names_at[at] = list_names(filed)
    for _, rest in pairs(REST) do names_at[at][rest] = true end
    if filed.reward then
      names_at[at].rewarded, names_at[at]['bucket=' .. find_bucket(tonumber(filed.reward))] = true, true
    end
  elseif clears then
    redis.call('HDEL', ids_key(block, first), at)
  end
end

local num_orphans = 0
local function look_at(name, at)
  if names_at[at] and names_at[at][name] then return end
  num_orphans = num_orphans + 1
  if clears then unmark(block, at, name, {name:match('^([^=]*)=?(.*)$')}) end
end

for i = 4, #ARGV do
  local bits = redis.call('GETRANGE', in_block(block, ARGV[i]), first / 8, (first + IDS_TOGETHER) / 8 - 1)
  for offset = 1, #bits do
    local byte = bits:byte(offset)
    for b = 0, byte > 0 and 7 or -1 do
      if bit.band(byte, bit.rshift(128, b)) ~= 0 then look_at(ARGV[i], first + 8 * (offset - 1) + b) end
    end
  end
end
return num_orphans
