-- Store the shared time and return it.
-- KEYS[1]: what holds it. Prelude: clock.lua.
local CLOCK = KEYS[1]
local now, stored = read_time(CLOCK)
if now > stored then
  store_time(CLOCK, now)
end
return now
