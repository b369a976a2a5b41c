-- Number of members of some blocks that meet the conditions, and the exact sum of their rewards. Reads only.
-- Preludes: scan.lua.
-- ARGV[1] also has: by (a column: one line for each of its values; nil: one line), success (least reward of a success).
-- Returns lines of: value ('' when unknown or without 'by'), count, number with a reward, successes, and two texts of
-- numbers whose exact sum is that of the rewards: plain ones, and large ones scaled by 2^-64 so that no sum overflows.
local lines, order = {}, {}

local function line_of(value)
  local name = value == value and string.format('%.17g', value) or ''
  local line = lines[name]
  if not line then
    line = {name, 0, 0, 0, {}, {}}
    lines[name], order[#order + 1] = line, line
  end
  return line
end

-- Add without rounding, so that no order of rows changes a sum: what each addition rounds off is kept as a part of its
-- own (Shewchuk 1997, grow-expansion).
local function add(parts, number)
  local num_kept, num_parts = 0, #parts
  for i = 1, num_parts do
    local large, small = number, parts[i]
    if math.abs(large) < math.abs(small) then large, small = small, large end
    number = large + small
    local rounded_off = small - (number - large)
    if rounded_off ~= 0 then num_kept = num_kept + 1; parts[num_kept] = rounded_off end
  end
  parts[num_kept + 1] = number
  for i = num_kept + 2, num_parts do parts[i] = nil end
end

local NOT_KNOWN = 0 / 0
local LARGE, SCALE = 2 ^ 900, 2 ^ -64
for _, block in ipairs(asked.blocks) do
  local reward_of = column_of(block, 'reward')
  local value_of = asked.by and column_of(block, asked.by)
  walk(block, false, function(at)
    local line, reward = line_of(value_of and value_of(at) or NOT_KNOWN), reward_of(at)
    line[2] = line[2] + 1
    if reward == reward then
      line[3] = line[3] + 1
      if reward >= asked.success then line[4] = line[4] + 1 end
      if math.abs(reward) < LARGE then add(line[5], reward) else add(line[6], reward * SCALE) end
    end
  end)
end

local function written(numbers)
  local texts = {}
  for i, number in ipairs(numbers) do texts[i] = string.format('%.17g', number) end
  return table.concat(texts, ' ')
end

local answer = {}
for _, line in ipairs(order) do
  local value, num_trajectories, num_rewarded, num_successes, parts, scaled_parts = unpack(line)
  answer[#answer + 1] = {value, num_trajectories, num_rewarded, num_successes, written(parts), written(scaled_parts)}
end
return answer
