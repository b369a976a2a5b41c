-- The order in which rollouts are leased: of the highest priority, then of the run whose turn it is, then what waits for
-- the oldest policy version, which is trained first, then what comes first.
--
-- Reads the index class by class and run by run, only as far as rollouts are taken; claim.lua then corrects the places
-- that were read.

local MAX_PAGE = 64
local MAX_UNUSED = 128 -- runs that one script looks at beyond those that it serves; a claim looks at them once
local shares, newest, sets_of_run, capable = {}, {}, {}, {}
local now_served, num_loaded, max_loaded = 0, 0, 0
local visited = {} -- places that were read: class, key, run and score of each, and what was loaded of its priority
local loaded = {} -- run → what it has in the priority that is served; false where nothing may be served
local awaited = {} -- run → oldest policy version that something of it waits for
local emptied = {} -- ready sets in which nothing waits any more
local opened = {} -- classes that were read
local prepare_class -- called with each before it is read

-- The newest policy version that answers a run's calls: the one that a trainer declared, because a registered version
-- may not be loaded yet. Without a declaration, the newest registered one.
local function newest_policy(run)
  if not newest[run] then
    newest[run] = tonumber(redis.call('HGET', key('book', run), 'served') or -1)
    for _, number in ipairs(newest[run] < 0 and redis.call('HKEYS', POLICIES .. run) or {}) do
      newest[run] = math.max(newest[run], tonumber(number))
    end
  end
  return newest[run]
end

-- What a run may have: weight is its share, quota the most leases, turn when it is served next.
local function read_share(run)
  if not shares[run] then
    local weight, quota, turn, leased = unpack(redis.call('HMGET', key('book', run), 'weight', 'quota', 'turn', 'leased'))
    shares[run] = { weight = tonumber(weight or 1), turn = tonumber(turn or 0), leased = tonumber(leased or 0),
      quota = tonumber(quota or nil) or math.huge }
  end
  return shares[run]
end

local function list_sets(run)
  if not sets_of_run[run] then
    sets_of_run[run] = {}
    for at, name in ipairs(redis.call('SMEMBERS', key('sets', run))) do
      sets_of_run[run][at] = parse_set(name)
    end
  end
  return sets_of_run[run]
end

local function meets(needs)
  for need in needs:gmatch('[^,]+') do
    if not capable[need] then
      return false
    end
  end
  return true
end

-- Look at more of a ready set; at four times as many in all, for one that yields much.
local function load_more(head)
  local num = #head.found / 2
  for _, one in ipairs(redis.call('ZRANGE', key('ready', head.set.name), num, num == 0 and 0 or 4 * num - 1, 'WITHSCORES')) do
    table.insert(head.found, one)
  end
end

-- The order of a run's heads, the first one last: what waits for the oldest policy version goes before others.
local function goes_after(one, other)
  local start, other_start = one.set.from_policy or 0, other.set.from_policy or 0
  if start ~= other_start then
    return start > other_start
  end
  return one.score > other.score
end

-- Find the first of a ready set that is left; return whether there is one.
local function find_head(head)
  if not head.found[head.at] then
    load_more(head)
  end
  head.score = tonumber(head.found[head.at + 1])
  if not head.score then
    emptied[#emptied + 1] = head.set
  end
  return head.score ~= nil
end

local function reinsert_head(candidate)
  local heads = candidate.heads
  local at, head = #heads, heads[#heads]
  if not find_head(head) then
    heads[at] = nil
    return
  end
  while at > 1 and goes_after(head, heads[at - 1]) do
    heads[at], at = heads[at - 1], at - 1
  end
  heads[at] = head
end

local function find_turn(run) -- a run that had nothing to do does not get the turns that it missed
  return math.max(read_share(run).turn, now_served)
end

-- What of a run may be taken with this priority; false where nothing may.
local function load_run(run, priority)
  num_loaded = num_loaded + 1
  local share, candidate = read_share(run), { run = run, heads = {} }
  if redis.call('HEXISTS', key('paused_runs'), run) == 1 or share.leased >= share.quota then
    return false
  end
  for _, set in ipairs(list_sets(run)) do
    if set.priority == priority and meets(set.needs) then
      if set.from_policy and newest_policy(run) < set.from_policy then
        awaited[run] = math.min(awaited[run] or math.huge, set.from_policy)
      else
        local head = { set = set, found = {}, at = 1 }
        candidate.heads[#candidate.heads + 1] = find_head(head) and head or nil
      end
    end
  end
  table.sort(candidate.heads, goes_after)
  return #candidate.heads > 0 and candidate
end

-- A sorted set that is read in its order, page by page.
local function open_set(name, turn)
  return { name = name, turn = turn, page = {}, at = 1, rank = 0, size = 2 }
end

local function read_front(source)
  if not source.page[source.at] and not source.is_over then
    source.page = redis.call('ZRANGE', source.name, source.rank, source.rank + source.size - 1, 'WITHSCORES')
    source.is_over, source.at = #source.page < 2 * source.size, 1
    source.rank, source.size = source.rank + source.size, math.min(4 * source.size, MAX_PAGE)
  end
  return source.page[source.at], tonumber(source.page[source.at + 1])
end

local function open_class(name)
  local class = { name = name, due = open_set(key('due', name)), turns = open_set(key('turns', name)), spent = {} }
  if prepare_class then
    prepare_class(class)
  end
  opened[#opened + 1] = class
  return class
end

-- The runs of the first turn in which any are left.
local function read_later(class)
  local turn = read_front(class.turns)
  while turn do
    class.later = class.later or open_set(key('later', class.name .. ':' .. turn), tonumber(turn))
    if read_front(class.later) then
      return class.later
    end
    class.spent[#class.spent + 1] = class.later.at == 1 and class.later.rank == 2 and turn or nil
    class.later, class.turns.at = nil, class.turns.at + 2
    turn = read_front(class.turns)
  end
end

-- The next run of a class: its source, turn and score, as listed.
local function find_next(class)
  local due, later = class.due, read_later(class)
  local run, score = read_front(due)
  if not later then
    return run and due, now_served, score
  end
  local turn, _, later_score = math.max(later.turn, now_served), read_front(later)
  if run and (now_served < turn or score < later_score) then
    return due, now_served, score
  end
  return later, turn, later_score
end

local function goes_before(turn, score, other)
  if turn ~= other.turn then
    return turn < other.turn
  end
  return score < other.score
end

-- Put something that has a turn and a score into a line in which the first comes last.
local function line_up(line, one)
  local low, high = 1, #line + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if goes_before(one.turn, one.score, line[middle]) then
      low = middle + 1
    else
      high = middle
    end
  end
  table.insert(line, low, one)
end

local function line_up_run(line, candidate)
  candidate.turn, candidate.score = find_turn(candidate.run), candidate.heads[#candidate.heads].score
  line_up(line, candidate)
end

local function line_up_class(line, class)
  local source, turn, score = find_next(class)
  if source then
    class.turn, class.score = turn, score
    line_up(line, class)
  end
end

-- Load runs until the first in line goes before every run that is not loaded. Classes are lined up by their next run;
-- that may only be later than when they were.
local function load_line(line, classes, priority)
  while num_loaded < max_loaded and classes[1] do
    local first, class = line[#line], table.remove(classes)
    local source, turn, score = find_next(class)
    if turn == class.turn and score == class.score then
      if first and not goes_before(turn, score, first) then
        table.insert(classes, class)
        return
      end
      local run = source.page[source.at]
      source.at = source.at + 2
      table.insert(visited, { class = class, key = source.name, run = run, score = score, loaded = loaded })
      if loaded[run] == nil then
        loaded[run] = load_run(run, priority)
        if loaded[run] then
          line_up_run(line, loaded[run])
        end
      end
    end
    line_up_class(classes, class)
  end
end

local function take_turn(candidate)
  local share = read_share(candidate.run)
  now_served = candidate.turn
  share.turn, share.leased, share.has_changed = now_served + 1 / share.weight, share.leased + 1, true
end

-- Take up to num rollouts of one priority, in order; return how many are left to take.
local function take_from(classes, priority, line, num, take)
  while num > 0 do
    load_line(line, classes, priority)
    local candidate = table.remove(line)
    if not candidate then
      break
    end
    local head = candidate.heads[#candidate.heads]
    head.at = head.at + 2
    if take(head.found[head.at - 2], head.set) then
      take_turn(candidate)
      num = num - 1
    end
    reinsert_head(candidate)
    local share = read_share(candidate.run)
    if #candidate.heads > 0 and share.leased < share.quota then
      line_up_run(line, candidate)
    end
  end
  return num
end

-- The classes that this worker can serve, of the highest priority that is left.
local function next_classes(lists)
  local classes, lowest = {}, nil
  for _, list in ipairs(lists) do
    local _, score = read_front(list)
    lowest = score and math.min(lowest or score, score) or lowest
  end
  for _, list in ipairs(lowest and lists or {}) do
    local name, score = read_front(list)
    while score == lowest do
      if meets(name:match('^[^/]*/(.*)$')) then
        line_up_class(classes, open_class(name))
      end
      list.at = list.at + 2
      name, score = read_front(list)
    end
  end
  return classes, lowest and -lowest
end

-- The next priority in which a worker of one run may find something.
local function next_priority_of_run(run, below)
  local highest
  for _, set in ipairs(list_sets(run)) do
    if set.priority < below and (not highest or set.priority > highest) then
      highest = set.priority
    end
  end
  return highest
end

-- Take up to num rollouts in order, of a run or ('') of all runs: take(rollout, ready set) returns whether it took one.
local function take_in_order(num, run, capabilities, take)
  local lists, classes, priority = { open_set(key('classes', '')) }, {}, math.huge
  max_loaded = num + MAX_UNUSED
  for at, one in ipairs(capabilities) do
    capable[one], lists[at + 1] = true, open_set(key('classes', one))
  end
  while num > 0 and num_loaded < max_loaded do
    local line = {}
    loaded = {}
    if run == '' then
      classes, priority = next_classes(lists)
    else
      priority = next_priority_of_run(run, priority)
      local candidate = priority and load_run(run, priority)
      if candidate then
        line_up_run(line, candidate)
      end
    end
    if not priority then
      break
    end
    num = take_from(classes, priority, line, num, take)
  end
end
