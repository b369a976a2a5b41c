-- Announces changes in the stream of events. Comes after keys.lua.
local NUM_EVENTS_KEPT = 10000

local function announce(...)
  redis.call('XADD', key('events'), 'MAXLEN', '~', NUM_EVENTS_KEPT, '*', ...)
end

