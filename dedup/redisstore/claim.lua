-- ARGV[2] is the record of a fresh claim, as the first pipeline tried to write it. ARGV[3] is 2 if the event is too old to
-- be claimed unless it is known.
-- Replies: held (the record), busy (what is left of the lease), conflict (the same, of a claim with another fingerprint), look
-- (the record speaks for itself), old.
local want = decode(ARGV[2])

if not rec then -- it expired after the first pipeline
  if ARGV[3] == '2' then
    return reply('old')
  end
  redis.call('SET', key, ARGV[2], 'PX', want.total)
  return reply('held', 0, ARGV[2])
end

local conflict = want.generation == 0 and #want.fingerprint == #rec.fingerprint and want.fingerprint ~= rec.fingerprint
if rec.state == DONE or rec.state == DEAD or conflict and rec.state == OPEN then
  return reply('look', 0, raw)
end
if conflict then
  return reply('conflict', leaseLeft(rec), raw)
end

if holds(rec) then -- the call is repeated: the answer of its first run, and the lease begins anew
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
if rec.generation == 0 and rec.fingerprint == '' then -- a redriven copy may have been repaired
  rec.fingerprint = want.fingerprint
end
rec.state, rec.token, rec.fence, rec.reopened = PENDING, token, rec.fence + 1, false
rec.retry, rec.lease, rec.total = want.retry, want.lease, want.total
return reply('held', 0, write(rec, rec.total))
