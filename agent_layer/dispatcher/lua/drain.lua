-- Tell workers to claim nothing more and to end when what they run has ended.
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
