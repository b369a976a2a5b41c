-- Removes deleted trajectories and groups from the index. Comes after prelude.lua, events.lua and blob_refs.lua.

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
  for _, part in ipairs({'chunks', 'calls', 'rewards', 'part-rewards', 'topics', 'blobs'}) do
    redis.call('DEL', key('t', id, part))
  end
end

-- Drop the group from the list of its run, which its record names; one without a record was never listed.
local function unlist_group(id)
  local record = redis.call('GET', key('group', id))
  if record then redis.call('ZREM', key('groups', cmsgpack.unpack(record).run), id) end
end

local function forget_group(id)
  for segment in (redis.call('HGET', key('group-segments'), id) or ''):gmatch('%S+') do
    redis.call('SADD', key('rewrite'), segment)
  end
  redis.call('HDEL', key('group-segments'), id)
  unlist_group(id)
  redis.call('DEL', key('group', id), key('group', id .. '/accepted'))
end

