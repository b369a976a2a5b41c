-- Number of members of some blocks that meet the conditions. Reads only.
-- Preludes: scan.lua.
-- Returns a number.
local NUM_SET = {}
for byte = 0, 255 do
  local n, left = 0, byte
  while left > 0 do n, left = n + left % 2, floor(left / 2) end
  NUM_SET[byte] = n
end

local rshift = bit.rshift
local function count_words(words)
  local n = 0
  for i = 1, NUM_WORDS do
    local word = words[i]
    if word ~= 0 then
      n = n + NUM_SET[band(word, 255)] + NUM_SET[band(rshift(word, 8), 255)] + NUM_SET[band(rshift(word, 16), 255)]
        + NUM_SET[rshift(word, 24)]
    end
  end
  return n
end

local count = 0
for _, block in ipairs(asked.blocks) do
  if #asked.ranges == 0 then
    local words = members_of(block)
    count = count + (words and count_words(words) or 0)
  else
    walk(block, false, function() count = count + 1 end)
  end
end
return count
