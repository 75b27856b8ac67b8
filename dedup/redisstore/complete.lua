-- ARGV[2] is the final record without the counts, ARGV[3] its retention in milliseconds, ARGV[4]
-- its reason or result, ARGV[5] the attempt that an open record waits for, ARGV[6] the delivery
-- whose dead letter was sent, with its length, if the record is dead and the delivery is known.
-- Replies: ok, lost.
local final, ttl, rest, retry, first = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local state, result = sub(final, 2, 2), byte(final, 3) % (2 * RESULT) >= RESULT

-- late: a success whose claim was released as uncertain, without a claim since (rule 13).
local late = rec and state == DONE and rec.state == OPEN and rec.token == token and rec.uncertain and not rec.reopened
  and rec.retry == retry

if rec and (holds(rec) or late) then
  rec.state, rec.rest, rec.result, rec.lease, rec.total = state, rest, result, 0, tonumber(ttl)
  if first ~= '' then
    rec.first = first
  end
  if state == OPEN then
    rec.retry = retry
  elseif state == DONE then
    rec.uncertain, rec.failures, rec.takeovers, rec.total = false, 0, 0, 0
  end
  write(rec, ttl)
  return reply('ok')
end

if rec and rec.state == state and rec.token == token and (state ~= OPEN or rec.retry == retry) then
  return reply('ok') -- repeated
end

-- Lost. An effect without a result has happened all the same, so the record becomes done.
if state == DONE and not result and not (rec and rec.state == DONE) then
  redis.call('SET', key, final, 'PX', ttl)
end
return reply('lost')
