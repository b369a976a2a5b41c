-- Take back lapsed leases and put back what has waited out its back-off, where no worker claims.
--
-- ARGV: max_attempts. Returns the number of lapsed leases.

local num = reap(tonumber(ARGV[1]))
promote()
wake()
return num
