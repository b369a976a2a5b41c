-- Claim the unclaimed group that closed first.
-- Preludes: clock.lua, prelude.lua.
-- ARGV: turn, a held group to return again or '', largest number of groups that the member may hold or -1,
-- closed_at and group after which to search the waiting ones or '' twice.
-- Returns {'group', group, closed_at, record}, or one word: none, full, superseded, or more: call again.
local turn, again, most, after_time, after_group = ARGV[7], ARGV[8], tonumber(ARGV[9]), ARGV[10], ARGV[11]
local left_to_look_at = 256 -- then other commands run
local PAGE = 32

local function make_answer(group, closed_at)
  return {'group', group, closed_at, redis.call('GET', key('group', group))}
end

local function requeue_lapsed(split)
  local members, waiting = feed(split, 'members'), feed(split, 'waiting')
  for _, lapsed in ipairs(redis.call('ZRANGEBYSCORE', members, '-inf', read_time(key('clock')), 'LIMIT', 0, 16)) do
    if lapsed ~= member then
      redis.call('ZUNIONSTORE', waiting, 2, waiting, feed(split, 'held', lapsed), 'AGGREGATE', 'MIN')
      redis.call('UNLINK', feed(split, 'held', lapsed))
      redis.call('ZREM', members, lapsed)
      redis.call('HDEL', feed(split, 'sessions'), lapsed)
      redis.call('HDEL', feed(split, 'turns'), lapsed)
    end
  end
end

local function is_held(split, group)
  for _, holder in ipairs(redis.call('ZRANGE', feed(split, 'members'), 0, -1)) do
    if redis.call('ZSCORE', feed(split, 'held', holder), group) then return true end
  end
  return false
end

-- A group without a record is one that a rebuild has not reached again; its commit will put it among those waiting.
local function is_due(split, group)
  if redis.call('SISMEMBER', acked, group) == 1 then return false end
  local record = redis.call('GET', key('group', group))
  return record and (cmsgpack.unpack(record).split or 'train') == split and not is_held(split, group)
end

-- Rank of the first member behind (score, name), which need not be in the sorted set any more.
local function rank_behind(set, score, name)
  local rank = redis.call('ZRANK', set, name)
  return rank and rank + 1 or redis.call('ZCOUNT', set, '-inf', '(' .. score)
end

local function first_waiting(split)
  local waiting = feed(split, 'waiting')
  local at = after_group == '' and 0 or rank_behind(waiting, after_time, after_group)
  while left_to_look_at > 0 do
    local group, closed_at = unpack(redis.call('ZRANGE', waiting, at, at, 'WITHSCORES'))
    if not group then return nil end
    if is_due(split, group) then return {split = split, group = group, closed_at = closed_at} end
    redis.call('ZREM', waiting, group)
    left_to_look_at = left_to_look_at - 1
  end
end

local function advance_feed(found)
  if not found then return end
  redis.call('HSET', key('feeds', run), consumer .. ':' .. found.split, found.closed_at .. ' ' .. found.group)
end

local function first_closed(split)
  local closed, at, passed = key('groups', run), 0, nil
  local place = redis.call('HGET', key('feeds', run), consumer .. ':' .. split)
  if place then at = rank_behind(closed, place:match('^(%S+) (.*)$')) end
  while left_to_look_at > 0 do
    local page = redis.call('ZRANGE', closed, at, at + PAGE - 1, 'WITHSCORES')
    for i = 1, #page, 2 do
      local found = {split = split, group = page[i], closed_at = page[i + 1], is_new = true}
      if is_due(split, found.group) and not redis.call('ZSCORE', feed(split, 'waiting'), found.group) then
        advance_feed(passed)
        return found
      end
      passed = found
    end
    if not page[1] then break end
    at, left_to_look_at = at + PAGE, left_to_look_at - PAGE
  end
  advance_feed(passed)
end

local function is_earlier(one, other)
  local left, right = tonumber(one.closed_at), tonumber(other.closed_at)
  return left < right or (left == right and one.group < other.group)
end

local function find_earliest()
  local first
  for _, split in ipairs(splits) do
    for _, find in ipairs({first_waiting, first_closed}) do
      local found = find(split)
      if found and (not first or is_earlier(found, first)) then first = found end
    end
  end
  return first
end

-- What is held and to be given again: by name, or because the answer to the same turn was lost on its way.
local function held_again(split)
  local last = redis.call('HGET', feed(split, 'turns'), member) or ''
  local last_turn = session .. ' ' .. turn .. ' '
  local group = last:sub(1, #last_turn) == last_turn and last:sub(#last_turn + 1) or again
  local closed_at = redis.call('ZSCORE', feed(split, 'held', member), group)
  if not closed_at then return nil end
  if redis.call('EXISTS', key('group', group)) == 1 then return make_answer(group, closed_at) end
  put_back(split, group)
end

if is_superseded() then return {'superseded'} end
for _, split in ipairs(splits) do requeue_lapsed(split) end
renew_member()
local num_held = 0
for _, split in ipairs(splits) do
  local found = held_again(split)
  if found then return found end
  num_held = num_held + redis.call('ZCARD', feed(split, 'held', member))
end
local first = find_earliest()
if left_to_look_at <= 0 then return {'more'} end
if not first then return {'none'} end
if most >= 0 and num_held >= most then return {'full'} end
if first.is_new then advance_feed(first) end
redis.call('ZREM', feed(first.split, 'waiting'), first.group)
redis.call('ZADD', feed(first.split, 'held', member), first.closed_at, first.group)
redis.call('HSET', feed(first.split, 'turns'), member, session .. ' ' .. turn .. ' ' .. first.group)
return make_answer(first.group, first.closed_at)
