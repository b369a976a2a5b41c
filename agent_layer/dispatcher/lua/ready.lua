-- How rollouts become claimable, and how waiting workers wake.

local MAX_AT_ONCE = 4000 -- Lua hands on 8000 arguments at most
local queue_grew = false

-- Wake workers that wait for what entered, and pages. Once per script is enough.
local function wake()
  index_entered()
  if queue_grew then
    redis.call('XADD', key('wake'), 'MAXLEN', '~', '64', '*', 'at', AT)
  end
end

local notified = {}

local function notify(calls)
  if notified[calls] then
    return
  end
  notified[calls] = true
  redis.call('XADD', calls, 'MAXLEN', '~', 16, '*', 'at', AT)
  redis.call('EXPIRE', calls, KEEP_SECONDS)
end

-- Make one worker's heartbeat come at once: there is news for it.
local function notify_worker(worker)
  notify(key('calls', worker))
end

-- Make the heartbeats of all workers come at once.
local function notify_workers()
  notify(key('calls'))
end

-- Let go of the task of a closed group, and in time of all that is known of it; by then the index knows it.
local function forget_group(g)
  redis.call('HDEL', g, 'task')
  redis.call('EXPIRE', g, 7 * KEEP_SECONDS)
end

-- Make rollouts claimable. places are score, rollout, score, rollout, …
local function enter_all(ready, places)
  queue_grew = true
  local num, lowest = 0, places[1]
  for at = 1, #places, MAX_AT_ONCE do
    num = num + redis.call('ZADD', key('ready', ready), unpack(places, at, math.min(#places, at + MAX_AT_ONCE - 1)))
  end
  for at = 3, #places, 2 do
    lowest = math.min(lowest, places[at])
  end
  count_waiting(parse_set(ready).needs, num)
  note_entered(ready, tonumber(lowest), num)
end

-- Make a rollout claimable, at the place that it had when it was added.
local function enter(rollout, ready, score)
  enter_all(ready, { score, rollout })
end

local function enqueue(rollout, from, ready, score, ...)
  move(rollout, from, 'queued', 'queued_at', AT, ...)
  enter(rollout, ready, score)
end
