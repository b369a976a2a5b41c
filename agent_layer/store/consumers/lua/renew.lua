-- Renew the member's claims, unless a later session acts for it.
-- Preludes: clock.lua, prelude.lua.
-- ARGV: group or ''. Returns -1 when superseded, 1 when the member holds the group, else 0.
if is_superseded() then return -1 end
renew_member()
for _, split in ipairs(splits) do
  if redis.call('ZSCORE', feed(split, 'held', member), ARGV[7]) then return 1 end
end
return 0
