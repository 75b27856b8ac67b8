-- ARGV[2] is the outcome: 0 unstarted, 1 failed, 2 unknown, 3 undone. ARGV[3] is the retention in
-- milliseconds. Replies: ok, lost.
local outcome, ttl = tonumber(ARGV[2]), ARGV[3]

if rec and rec.state == OPEN and rec.token == token then
  return reply('ok') -- repeated
end
if not (rec and holds(rec)) then
  return reply('lost')
end
if outcome == 1 then
  rec.failures = rec.failures + 1
end
if outcome == 2 then
  rec.uncertain = true
end
if outcome == 3 and not rec.uncertain then
  rec.fingerprint = ''
end
rec.state, rec.lease, rec.total = OPEN, 0, tonumber(ttl)
write(rec, ttl)
return reply('ok')
