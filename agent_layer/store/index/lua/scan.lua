-- Walk over the members of blocks that meet conditions. Reads only; comes before search.lua, aggregate.lua, count.lua.
-- KEYS[1]: prefix of the namespace. ARGV[1]: msgpack of a ScanRequest, see index.py: blocks, names (a member must be in
-- all of these bitmaps), without (and in none of these), any (and in at least one of these; nil: no condition), ranges
-- ({column, least, greatest}; an unknown number is in no range).
local prefix, request = KEYS[1], cmsgpack.unpack(ARGV[1])
local NUM_WORDS, WORD_BITS, VALUES_TOGETHER = 64, 32, 32
local WORDS, VALUES = '>' .. ('I4'):rep(NUM_WORDS), '<' .. ('d'):rep(VALUES_TOGETHER)
local EMPTY = ('\0'):rep(NUM_WORDS * 4)
local MASKS = {}
for i = 1, WORD_BITS do MASKS[i] = bit.lshift(1, WORD_BITS - i) end -- Redis counts from the highest bit
local band, bnot, floor, unpack_struct = bit.band, bit.bnot, math.floor, struct.unpack

local function key(...)
  return table.concat({prefix, ...}, ':')
end

local function read_words(block, name)
  local bitmap = redis.call('GET', key('b', block, name))
  return bitmap and {unpack_struct(WORDS, bitmap .. EMPTY:sub(#bitmap + 1))}
end

-- The members that are in one of the bitmaps of 'any', as words.
local function find_any_members(block)
  local words
  for _, name in ipairs(request.any) do
    local more = read_words(block, name)
    if words and more then
      for i = 1, NUM_WORDS do words[i] = bit.bor(words[i], more[i]) end
    else
      words = words or more
    end
  end
  return words
end

-- The members of a block that have all names and none of those that they must not have, as words; nil: there is none.
local function find_members(block)
  local words
  if request.any then
    words = find_any_members(block)
    if not words then return nil end
  end
  for _, name in ipairs(request.names) do
    local more = read_words(block, name)
    if not more then return nil end
    if words then
      local any = 0
      for i = 1, NUM_WORDS do
        local both = band(words[i], more[i])
        words[i], any = both, bit.bor(any, both)
      end
      if any == 0 then return nil end
    else
      words = more
    end
  end
  for _, name in ipairs(request.without) do
    local less = read_words(block, name)
    if less then
      for i = 1, NUM_WORDS do words[i] = band(words[i], bnot(less[i])) end
    end
  end
  return words
end

-- A column as a function from position to number, read in groups as they are needed.
local function read_column(block, column)
  local stored, groups = redis.call('GET', key('b', block, column)) or '', {}
  local lacking = NUM_WORDS * WORD_BITS * 8 - #stored
  if lacking > 0 then stored = stored .. ('\0'):rep(lacking) end
  return function(at)
    local group = floor(at / VALUES_TOGETHER)
    local values = groups[group]
    if not values then
      values = {unpack_struct(VALUES, stored, group * VALUES_TOGETHER * 8 + 1)}
      groups[group] = values
    end
    return values[at % VALUES_TOGETHER + 1]
  end
end

local function read_ranges(block)
  local tests = {}
  for i, range in ipairs(request.ranges) do tests[i] = {read_column(block, range[1]), range[2], range[3]} end
  return tests
end

local function is_within(tests, at)
  for i = 1, #tests do
    local test = tests[i]
    local value = test[1](at)
    if not (value >= test[2] and value <= test[3]) then return false end
  end
  return true
end

-- Call visit(at) for each member that meets the conditions; gives the number of members whose numbers were looked at.
local function walk(block, backwards, visit)
  local words = find_members(block)
  if not words then return 0 end
  local tests, num_tested = read_ranges(block), 0
  local first, last, step = 1, NUM_WORDS, 1
  if backwards then first, last, step = NUM_WORDS, 1, -1 end
  local first_bit, last_bit = 1, WORD_BITS
  if backwards then first_bit, last_bit = WORD_BITS, 1 end
  for w = first, last, step do
    local word = words[w]
    if word ~= 0 then
      for b = first_bit, last_bit, step do
        if band(word, MASKS[b]) ~= 0 then
          local at = (w - 1) * WORD_BITS + b - 1
          num_tested = num_tested + 1
          if is_within(tests, at) then visit(at) end
        end
      end
    end
  end
  return num_tested
end

