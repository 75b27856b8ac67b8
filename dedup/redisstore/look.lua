-- Tells the record as it is, and how long it lives. It is short, since it is sent as text each time: so that looking is one
-- round trip on a server too that has not seen it before. Replies: look (its life, the record), none.
local raw = redis.call('GET', KEYS[1])
if not raw then
  return { ARGV[1], 'none', 0, '' }
end
return { ARGV[1], 'look', redis.call('PTTL', KEYS[1]), raw }
