-- How changes are announced in the stream of events. Stands behind blocks.lua.
local NUM_EVENTS_KEPT = 10000

local function announce(...)
  redis.call('XADD', key('events'), 'MAXLEN', '~', NUM_EVENTS_KEPT, '*', ...)
end

