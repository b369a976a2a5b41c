-- Announces changes in the stream of events. Comes after keys.lua.
local NUM_EVENTS_KEPT = 10000

local function announce(...)
  redis.call('XADD', key('events'), 'MAXLEN', '~', NUM_EVENTS_KEPT, '*', ...)
end

-- Announce trajectories that go on, {{id, run}, ...}, in a stream of their own: thousands of steps a second must not
-- push other events out of theirs.
local function announce_growth(growing)
  if #growing == 0 then return end
  redis.call('XADD', key('steps'), 'MAXLEN', '~', NUM_EVENTS_KEPT / 10, '*', 'grown', cmsgpack.pack(growing))
end
