-- Shows the record as it is. Replies: look (how long it lives, the record), none.
if not raw then
  return reply('none')
end
return reply('look', redis.call('PTTL', key), raw)
