-- The first members of some blocks, in the requested order. Reads only.
-- Preludes: scan.lua.
-- ARGV[1] also has: column (sorts first, then started_at), descending, limit; after (value and started_at of the last
-- one on the page before) and bound (of the last one that is still needed), either may be nil.
-- Returns the number of members tested, then id, value and started_at of each match: the first 'limit', and all that
-- tie with the last of them or with 'after', because the caller breaks ties by id.
local IDS_TOGETHER = 128
local limit, descending = request.limit, request.descending
local after, bound = request.after, request.bound

local function is_before(value, start, other_value, other_start)
  if value ~= other_value then return (value > other_value) == descending end
  return start ~= other_start and (start > other_start) == descending
end

local found, level = {}, {} -- the best so far and some more; those that stand where 'after' stands
local most = 2 * limit -- number of matches before they are sorted

local function is_wanted(value, start)
  return not (bound and is_before(bound[1], bound[2], value, start))
end

-- Put what was found in order, and drop what is behind the last one that is wanted.
local function trim()
  table.sort(found, function(one, other) return is_before(one[1], one[2], other[1], other[2]) end)
  local last = found[limit]
  if not last then return end
  while is_before(last[1], last[2], found[#found][1], found[#found][2]) do found[#found] = nil end
  bound, most = last, 2 * #found
end

local function keep(value, start, block, at)
  found[#found + 1] = {value, start, block, at}
  if #found >= most then trim() end
end

local function make_visitor(block)
  local read_value, read_start = read_column(block, request.column), read_column(block, 'started_at')
  return function(at)
    local value, start = read_value(at), read_start(at)
    if value ~= value then return end -- not known
    if after and not is_before(after[1], after[2], value, start) then
      if value == after[1] and start == after[2] then level[#level + 1] = {value, start, block, at} end
    elseif is_wanted(value, start) then
      keep(value, start, block, at)
    end
  end
end

local num_tested = 0
for _, block in ipairs(request.blocks) do
  num_tested = num_tested + walk(block, descending, make_visitor(block))
end

trim()
local answer = {num_tested}
local function give(one)
  local value, start, block, at = unpack(one)
  local id = redis.call('HGET', key('b', block, 'ids', floor(at / IDS_TOGETHER)), at)
  if not id or tonumber(redis.call('HGET', key('t', id), 'ordinal')) ~= block * NUM_WORDS * WORD_BITS + at then
    return -- its row was lost, and filed again elsewhere
  end
  answer[#answer + 1] = id
  answer[#answer + 1] = string.format('%.17g', value)
  answer[#answer + 1] = string.format('%.17g', start)
end
for _, one in ipairs(level) do give(one) end
for _, one in ipairs(found) do give(one) end
return answer
