-- Put back a group that cannot be delivered yet.
-- Preludes: clock.lua, prelude.lua.
-- ARGV: group.
if is_superseded() then return end
for _, split in ipairs(splits) do put_back(split, ARGV[7]) end
