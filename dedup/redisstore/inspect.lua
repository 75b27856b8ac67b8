-- Returns the record. Replies: look (the TTL, the record), none.
if not raw then
  return reply('none')
end
return reply('look', redis.call('PTTL', key), raw)
