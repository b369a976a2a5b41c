-- Put a group back that cannot be given out yet. ARGV: group.
if is_superseded() then return end
for _, split in ipairs(splits) do put_back(split, ARGV[7]) end
