-- Take over a member: from now on only this session acts for it.
-- Preludes: clock.lua, prelude.lua.
-- Returns the groups that the member holds: group, closed_at, and so on.
local held = {}
renew_member()
for _, split in ipairs(splits) do
  for _, value in ipairs(redis.call('ZRANGE', feed(split, 'held', member), 0, -1, 'WITHSCORES')) do
    held[#held + 1] = value
  end
end
return held
