-- Tasks of the rollouts that a worker is likely to lease next: of the highest priority first, then what comes first. The
-- turns of runs and the policy versions that tasks wait for are left out. Writes nothing.
--
-- ARGV: num, run or '' for any, then what the worker is capable of. Returns tasks as they were added.

local NUM, RUN = tonumber(ARGV[1]), ARGV[2]
local capable, next_up, tasks = {}, {}, {}
for at = 3, #ARGV do
  capable[ARGV[at]] = true
end

local function may_take(run, needs)
  if (RUN ~= '' and RUN ~= run) or redis.call('HEXISTS', key('paused_runs'), run) == 1 then
    return false
  end
  for need in needs:gmatch('[^,]+') do
    if not capable[need] then
      return false
    end
  end
  return true
end

for _, name in ipairs(redis.call('SMEMBERS', key('ready'))) do
  local run, priority, needs = name:match('^([^/]*)/([^/]*)/[^/]*/(.*)$')
  if may_take(run, needs) then
    local found = redis.call('ZRANGE', key('ready', name), 0, NUM - 1, 'WITHSCORES')
    for at = 1, #found, 2 do
      next_up[#next_up + 1] = { rollout = found[at], priority = tonumber(priority), score = tonumber(found[at + 1]) }
    end
  end
end
table.sort(next_up, function(one, other)
  if one.priority ~= other.priority then
    return one.priority > other.priority
  end
  return one.score < other.score
end)
for at = 1, math.min(NUM, #next_up) do
  tasks[at] = redis.call('HGET', key('g', redis.call('HGET', key('r', next_up[at].rollout), 'group')), 'task') or ''
end
return tasks
