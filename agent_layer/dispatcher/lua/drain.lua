-- Let workers finish what they run, claim nothing more and exit.
--
-- ARGV: names of workers. Returns those that are known.

local known = {}
for _, worker in ipairs(ARGV) do
  if redis.call('ZSCORE', key('workers'), worker) then
    redis.call('SADD', key('draining'), worker)
    notify_worker(worker)
    known[#known + 1] = worker
  end
end
return known
