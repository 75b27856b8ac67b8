-- Compare and extend (R-05): ARGV[2] is the lease in milliseconds. A lease that is over but was not taken over is
-- still held. Replies: ok, lost.
if not (rec and holds(rec)) then
  return reply('lost')
end
local lease = tonumber(ARGV[2])
if lease == rec.lease then
  redis.call('PEXPIRE', key, rec.total) -- no memory needed: works on a full Redis too
else
  rec.total, rec.lease = rec.total - rec.lease + lease, lease
  write(rec, rec.total)
end
return reply('ok')
