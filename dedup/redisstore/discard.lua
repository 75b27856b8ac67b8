-- Gives an event up for good, whoever holds it: a person decided so. ARGV[2] is the record if there is none, ARGV[3] the
-- retention in milliseconds, ARGV[4] the reason. A record lives on for as long as it was to live, if that is longer. The
-- token is that of this call, so that no word of an earlier holder counts as repeated. Replies: ok, done, look (the record
-- of another key, R-15).
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
