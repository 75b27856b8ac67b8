-- Gives an event up for good, whoever holds it, by an operator's decision. ARGV[2] is the record if
-- there is none, ARGV[3] the retention in milliseconds, ARGV[4] the reason. A longer life of the
-- record stays. The token is that of this call, so that a call of an earlier holder does not count
-- as repeated. Replies: ok, done, look (the record of another key, R-15).
local ttl = tonumber(ARGV[3])

if not rec then
  redis.call('SET', key, ARGV[2], 'PX', ttl)
  return reply('ok')
end
if rec.check ~= sub(ARGV[2], 4, 7) then
  return reply('look', 0, raw)
end
if rec.state == DONE then
  return reply('done')
end
ttl = math.max(ttl, redis.call('PTTL', key))
rec.state, rec.token, rec.rest, rec.lease, rec.total, rec.reopened = DEAD, token, ARGV[4], 0, ttl, false
write(rec, ttl)
return reply('ok')
