-- Compare and extend (R-05): ARGV[2] is the lease in milliseconds. A claim whose lease has ended
-- holds until a take-over. Replies: ok, lost.
if not (rec and holds(rec)) then
  return reply('lost')
end
local lease = tonumber(ARGV[2])
if lease == rec.lease then
  redis.call('PEXPIRE', key, rec.total) -- needs no memory: works on a full Redis, too
else
  rec.total, rec.lease = rec.total - rec.lease + lease, lease
  write(rec, rec.total)
end
return reply('ok')
