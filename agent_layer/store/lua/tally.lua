-- How many members of some blocks meet the conditions, and what their rewards come to. Stands behind scan.lua.
-- ARGV[1] also has: by (a column: one line for each of its values; nil: one line), success (least reward of one).
-- Returns lines of: value ('' where not known or not asked), count, number with a reward, sum of rewards, successes.
local lines, order = {}, {}

local function line_of(value)
  local name = value == value and string.format('%.17g', value) or ''
  local line = lines[name]
  if not line then
    line = {name, 0, 0, 0, 0}
    lines[name], order[#order + 1] = line, line
  end
  return line
end

local NOT_KNOWN = 0 / 0
for _, block in ipairs(asked.blocks) do
  local reward_of = column_of(block, 'reward')
  local value_of = asked.by and column_of(block, asked.by)
  walk(block, false, function(at)
    local line, reward = line_of(value_of and value_of(at) or NOT_KNOWN), reward_of(at)
    line[2] = line[2] + 1
    if reward == reward then
      line[3], line[4] = line[3] + 1, line[4] + reward
      if reward >= asked.success then line[5] = line[5] + 1 end
    end
  end)
end

local answer = {}
for _, line in ipairs(order) do
  for _, value in ipairs(line) do
    answer[#answer + 1] = type(value) == 'number' and string.format('%.17g', value) or value
  end
end
return answer
