-- Deletes a record unless a worker has a live claim on it. ARGV[2] is the check of the key: the
-- record of another key stays (R-15). Replies: ok, none, busy (the remaining lease), look (the
-- record of another key).
if not rec then
  return reply('none')
end
if rec.check ~= ARGV[2] then
  return reply('look', 0, raw)
end
local left = leaseLeft(rec)
if left > 0 then
  return reply('busy', left)
end
redis.call('DEL', key)
return reply('ok')
