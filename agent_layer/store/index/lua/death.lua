-- Removes deleted trajectories and groups from the index. Comes after prelude.lua and events.lua.

-- Release a blob. A blob that no trajectory needs may be removed: see unneeded.lua.
local function release_blob(id, name)
  redis.call('SREM', key('blob', name), id)
  if redis.call('EXISTS', key('blob', name)) == 0 then redis.call('SADD', key('unneeded'), name) end
end

local function forget_trajectory(id)
  local row = key('t', id)
  for _, segment in ipairs(redis.call('HKEYS', key('t', id, 'chunks'))) do
    redis.call('SADD', key('rewrite'), segment)
  end
  if redis.call('EXISTS', row) == 1 then
    local run = redis.call('HGET', row, 'run') or ''
    unfile(row)
    announce('kind', 'deleted', 'trajectory_id', id, 'run', run)
  end
  for _, name in ipairs(redis.call('HKEYS', key('t', id, 'blobs'))) do release_blob(id, name) end
  redis.call('DEL', row)
  for _, part in ipairs({'chunks', 'calls', 'rewards', 'part-rewards', 'blobs'}) do redis.call('DEL', key('t', id, part)) end
end

local function forget_group(id)
  for segment in (redis.call('HGET', key('group-segments'), id) or ''):gmatch('%S+') do
    redis.call('SADD', key('rewrite'), segment)
  end
  redis.call('HDEL', key('group-segments'), id)
  redis.call('DEL', key('group', id))
  for _, run in ipairs(redis.call('SMEMBERS', key('runs'))) do redis.call('ZREM', key('groups', run), id) end
end

