-- Lets a dead record wait for a copy of the next generation, by an operator's decision, and resets
-- its counts. Replies: ok (the record), look (not dead).
if not rec then
  return reply('look')
end
if rec.state == OPEN and rec.reopened then
  return reply('ok', 0, raw) -- repeated
end
if rec.state ~= DEAD then
  return reply('look', 0, raw)
end
rec.state, rec.reopened, rec.uncertain = OPEN, true, false
rec.failures, rec.takeovers = 0, 0
rec.generation, rec.retry, rec.rest = rec.generation + 1, 0, ''
return reply('ok', 0, write(rec, rec.total))
