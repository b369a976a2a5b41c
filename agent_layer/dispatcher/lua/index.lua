-- Index of what may be claimed, so that a claim looks only at what it may lease, however many runs there are.
--
-- A class is 'priority/needs'; it is listed under the first of its needs. In a class, a run stands among those whose turn
-- has come, or at its turn, by the lowest score that it has there. Places are bounds: a run is never listed later than
-- its turn and score say, and may be listed earlier. A claim corrects each place that it reads. A run that may not be
-- served now (paused, at its quota, waiting for a policy version) loses its places; what changes that lists it again.

local entered = {} -- name of a ready set → lowest score that entered it, how many waiters to wake for it
local grown = {} -- needs → by how many more rollouts wait with them
local kinds_by_id

-- Lists that begin with their first need: those without needs under ''.
local function list_of_class(needs)
  return key('classes', needs:match('^[^,]*'))
end

-- Remember that rollouts entered a ready set; index_entered() writes it, once per script.
local function note_entered(name, score, num_to_wake)
  local one = entered[name] or { score = math.huge, num_to_wake = 0 }
  one.score, one.num_to_wake = math.min(one.score, score), one.num_to_wake + num_to_wake
  entered[name] = one
end

-- Count what entered a ready set, or left it.
local function count_waiting(needs, by)
  grown[needs] = (grown[needs] or 0) + by
end

local function turn_text(turn)
  return string.format('%.17g', turn)
end

local function name_place(class, turn, now_served)
  return turn <= now_served and key('due', class) or key('later', class .. ':' .. turn_text(turn))
end

-- List a run at its turn, by the lowest score that it has in the class; never later than it is listed there.
local function place(class, run, score, turn, now_served)
  redis.call('ZADD', name_place(class, turn, now_served), 'LT', score, run)
  if turn > now_served then
    redis.call('ZADD', key('turns', class), turn_text(turn), turn_text(turn))
  end
end

-- List again all that waits in a run.
local function index_run(run, num_to_wake)
  for _, name in ipairs(redis.call('SMEMBERS', key('sets', run))) do
    local first = redis.call('ZRANGE', key('ready', name), 0, 0, 'WITHSCORES')
    if first[1] then
      note_entered(name, tonumber(first[2]), num_to_wake or redis.call('ZCARD', key('ready', name)))
    end
  end
end

-- The kinds of workers that wait now: id → its run or '', and what it is capable of.
local function read_kinds()
  if not kinds_by_id then
    kinds_by_id = {}
    local flat = redis.call('HGETALL', key('kinds'))
    for at = 1, #flat, 2 do
      local about, capable = cmsgpack.unpack(flat[at + 1]), {}
      for _, one in ipairs(about[2]) do
        capable[one] = true
      end
      kinds_by_id[flat[at]] = { run = about[1], capable = capable }
    end
  end
  return kinds_by_id
end

local function find_lack(capable, needs)
  for need in needs:gmatch('[^,]+') do
    if not capable[need] then
      return need
    end
  end
end

-- Wake as many waiters of a kind as there is work; return how many still lack one. Who waited too long looks by itself.
local function wake_kind(kind, num)
  while num > 0 do
    local waiters = redis.call('ZPOPMIN', key('waiters', kind), num)
    for at = 1, #waiters, 2 do
      if tonumber(waiters[at + 1]) >= NOW then
        redis.call('RPUSH', key('wake', waiters[at]), 1)
        redis.call('PEXPIRE', key('wake', waiters[at]), 10000)
        num = num - 1
      end
    end
    if #waiters == 0 then
      redis.call('HDEL', key('kinds'), kind)
      kinds_by_id[kind] = nil
      return num
    end
  end
  return num
end

local function wake_waiters(run, needs, num)
  for kind, about in pairs(read_kinds()) do
    if (about.run == '' or about.run == run) and not find_lack(about.capable, needs) then
      num = wake_kind(kind, num)
    end
  end
end

-- Write what entered: where it is listed, how much waits, who wakes. Once per script, at its end.
local function index_entered()
  local now_served = next(entered) and tonumber(redis.call('HGET', key('clock'), 'turn') or 0)
  for name, one in pairs(entered) do
    local set = parse_set(name)
    if one.score < math.huge then
      redis.call('SADD', key('sets', set.run), name)
      redis.call('ZADD', list_of_class(set.needs), -set.priority, set.class)
      local turn = tonumber(redis.call('HGET', key('book', set.run), 'turn') or 0)
      place(set.class, set.run, one.score, turn, now_served)
    end
    if one.num_to_wake > 0 then
      wake_waiters(set.run, set.needs, one.num_to_wake)
    end
  end
  for needs, by in pairs(grown) do
    if by ~= 0 then
      if redis.call('HINCRBY', key('waiting'), needs, by) == 0 then
        redis.call('HDEL', key('waiting'), needs)
      end
      redis.call('INCRBY', key('num_waiting'), by)
    end
  end
  entered, grown = {}, {}
end

-- Take over the ready sets of an earlier version, which listed their names and nothing else.
local function adopt_ready_sets()
  local names = redis.call('SMEMBERS', key('ready'))
  for _, name in ipairs(names) do
    local first = redis.call('ZRANGE', key('ready', name), 0, 0, 'WITHSCORES')
    if first[1] then
      note_entered(name, tonumber(first[2]), 0)
      count_waiting(parse_set(name).needs, redis.call('ZCARD', key('ready', name)))
    end
  end
  if names[1] then
    redis.call('DEL', key('ready'))
    index_entered()
  end
end

adopt_ready_sets()
