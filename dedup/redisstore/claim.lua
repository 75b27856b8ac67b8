-- ARGV[2] is the record of a fresh claim, as in the first pipeline. ARGV[3] is 2 if the event is
-- too old to be claimed without a record. ARGV[4], if there is one, is a second fingerprint that is
-- no conflict. Replies: held (the record), busy (the remaining lease),
-- conflict (the same, of a claim with another fingerprint), look (the record has the answer), old.
local want = decode(ARGV[2])

if not rec then -- the record has expired since the first pipeline
  if ARGV[3] == '2' then
    return reply('old')
  end
  redis.call('SET', key, ARGV[2], 'PX', want.total)
  return reply('held', 0, ARGV[2])
end

local conflict = want.generation == 0 and #want.fingerprint == #rec.fingerprint and want.fingerprint ~= rec.fingerprint
  and ARGV[4] ~= rec.fingerprint
if rec.state == DONE or rec.state == DEAD or conflict and rec.state == OPEN then
  return reply('look', 0, raw)
end
if conflict then
  return reply('conflict', leaseLeft(rec), raw)
end

if holds(rec) then -- a repeated call: the first answer again, with a new lease
  rec.lease, rec.total = want.lease, want.total
  return reply('held', 0, write(rec, rec.total))
end

local left = leaseLeft(rec)
if left > 0 then
  return reply('busy', left, raw)
end

if want.generation ~= rec.generation or want.retry < rec.retry then
  return reply('look', 0, raw)
end

if rec.state == PENDING then
  rec.uncertain, rec.takeovers = true, rec.takeovers + 1
end
if rec.generation == 0 and rec.fingerprint == '' then -- a replayed copy may have been repaired
  rec.fingerprint = want.fingerprint
end
rec.state, rec.token, rec.fence, rec.reopened = PENDING, token, rec.fence + 1, false
rec.retry, rec.lease, rec.total = want.retry, want.lease, want.total
return reply('held', 0, write(rec, rec.total))
