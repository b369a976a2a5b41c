-- Members of sorted set KEYS[1] after a position, in order. The position need not exist any more: then the walk goes
-- on at the first member of its score, and the caller leaves out those that lie before it.
-- ARGV: 'ascending' or 'descending', score of the position, member of the position ('' before all of this score), how many.
-- Returns {member, score, member, score, ...}.
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
return redis.call(down and 'ZREVRANGE' or 'ZRANGE', KEYS[1], start, start + ARGV[4] - 1, 'WITHSCORES')
