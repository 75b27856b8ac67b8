-- Returns the record and its TTL. The script is short, because it is always sent as text. So a look
-- is one round trip, also on a server that does not know the script. Replies: look (the TTL, the
-- record), none.
local raw = redis.call('GET', KEYS[1])
if not raw then
  return { ARGV[1], 'none', 0, '' }
end
return { ARGV[1], 'look', redis.call('PTTL', KEYS[1]), raw }
