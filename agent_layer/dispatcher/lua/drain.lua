-- Let workers finish what they run, claim nothing more and exit.
--
-- ARGV: names of workers. Returns those that are known.

local told = {}
for _, worker in ipairs(ARGV) do
  if redis.call('ZSCORE', key('workers'), worker) then
    redis.call('SADD', key('draining'), worker)
    call(worker)
    told[#told + 1] = worker
  end
end
return told
