-- Deletes a record unless somebody holds a live claim on it. ARGV[2] is the check of the key: what belongs to another one
-- is left alone (R-15). Replies: ok, none, busy (what is left of the lease), look (the record of another key).
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
