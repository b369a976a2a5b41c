-- Acknowledge groups for good, no matter which member holds them.
-- Preludes: clock.lua, prelude.lua.
-- ARGV: groups. Returns for each: acked when this session held it, late when it did not, again on a repeated call.
local function release(split, group)
  local speaks = redis.call('HGET', feed(split, 'sessions'), member) == session
  local stood = speaks and redis.call('ZSCORE', feed(split, 'held', member), group)
  redis.call('ZREM', feed(split, 'waiting'), group)
  for _, holder in ipairs(redis.call('ZRANGE', feed(split, 'members'), 0, -1)) do
    redis.call('ZREM', feed(split, 'held', holder), group)
  end
  return stood
end

local answers = {}
for i = 7, #ARGV do
  local answer = 'late'
  for _, split in ipairs(splits) do
    if release(split, ARGV[i]) then answer = 'acked' end
  end
  answers[#answers + 1] = redis.call('SADD', acked, ARGV[i]) == 1 and answer or 'again'
end
return answers
