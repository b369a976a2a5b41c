-- Let this session speak for the member from now on, and no earlier one.
-- Returns what the member holds: group, closed_at, and so on.
local held = {}
show()
for _, split in ipairs(splits) do
  for _, value in ipairs(redis.call('ZRANGE', feed(split, 'held', member), 0, -1, 'WITHSCORES')) do
    held[#held + 1] = value
  end
end
return held
