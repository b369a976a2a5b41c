-- The shared time of a namespace; see clock.py. It comes before every script that needs the time: the last argument of
-- such a script is its caller's estimate of it.

local ESTIMATE = tonumber(table.remove(ARGV))

-- Returns the time, and what is stored of it; in milliseconds.
local function read_time(name)
  local stored = tonumber(redis.call('GET', name) or 0)
  return math.max(ESTIMATE, stored), stored
end

local function store_time(name, now)
  redis.call('SET', name, string.format('%d', now))
end
