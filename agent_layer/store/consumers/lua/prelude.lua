-- State of claims. A feed is what one consumer follows of one run and split:
--   feeds:<run>                     hash: consumer:split → 'closed_at group', its position in groups:<run>
--   acked:<run>:<consumer>          set: acknowledged groups
--   claims:<feed>:waiting           sorted set by time of closing: before the position, neither held nor acknowledged
--   claims:<feed>:members           sorted set: member → when its claims lapse, in ms of the shared clock
--   claims:<feed>:sessions, :turns  hashes: member → the session that acts for it; 'session turn group' last taken
--   claims:<feed>:held:<member>     sorted set by time of closing: delivered to it, not acknowledged
-- commit.lua puts a group that closed before a feed's position into its waiting set.
--
-- KEYS[1]: prefix of the namespace.
-- ARGV: run, consumer, member, session, claim ms, splits by comma, then those of the script itself.
local prefix, run, consumer, member, session = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local splits = {}
for split in ARGV[6]:gmatch('[^,]+') do splits[#splits + 1] = split end

local function key(...)
  return table.concat({prefix, ...}, ':')
end

local function feed(split, ...)
  return key('claims', run, consumer, split, ...)
end

local acked = key('acked', run, consumer)

-- Whether a later session acts for this member.
local function is_superseded()
  for _, split in ipairs(splits) do
    local known = redis.call('HGET', feed(split, 'sessions'), member)
    if known and known ~= session then return true end
  end
  return false
end

-- Renew this member. A lapsed one becomes a member again, without the groups that it held.
local function renew_member()
  local now, stored = read_time(key('clock'))
  if now - stored > ARGV[5] / 32 then store_time(key('clock'), now) end
  for _, split in ipairs(splits) do
    redis.call('HSET', feed(split, 'sessions'), member, session)
    redis.call('ZADD', feed(split, 'members'), now + ARGV[5], member)
  end
end

-- Put back a group that this member holds, for any member to take. Returns whether it held the group.
local function put_back(split, group)
  local closed_at = redis.call('ZSCORE', feed(split, 'held', member), group)
  if not closed_at then return false end
  redis.call('ZREM', feed(split, 'held', member), group)
  redis.call('ZADD', feed(split, 'waiting'), closed_at, group)
  return true
end
