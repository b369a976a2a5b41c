-- Members of sorted set KEYS[1] after a position, in order, whose rows meet conditions. The position need not exist any
-- more: then the walk goes on at the first member of its score, and the caller leaves out what lies before it.
-- KEYS[2]: what the key of a row begins with, in the same hash slot; the member follows.
-- ARGV: 'ascending' or 'descending', score of the position, its member ('' stands before all of this score), how many
-- members to look at, then the conditions (see match.lua).
-- Returns the last member looked at and its score, then each member that matches and its score; nothing at the end.
local down = ARGV[1] == 'descending'
local score, member = ARGV[2], ARGV[3]
local known = member ~= '' and redis.call('ZSCORE', KEYS[1], member)
local start
if known and tonumber(known) == tonumber(score) then
  start = redis.call(down and 'ZREVRANK' or 'ZRANK', KEYS[1], member) + 1
elseif down then
  start = redis.call('ZCOUNT', KEYS[1], '(' .. score, '+inf')
else
  start = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. score)
end

local found = redis.call(down and 'ZREVRANGE' or 'ZRANGE', KEYS[1], start, start + ARGV[4] - 1, 'WITHSCORES')
local matches = matcher(5)
local answer = { found[#found - 1], found[#found] }
for i = 1, #found, 2 do
  if matches(KEYS[2] .. found[i]) then
    answer[#answer + 1] = found[i]
    answer[#answer + 1] = found[i + 1]
  end
end
return answer
