-- Puts back what an unconditional completion overwrote: ARGV[2] is what it wrote, ARGV[3] what is to be there. Nothing
-- happens if the record changed again. Replies: ok.
if raw == ARGV[2] then
  redis.call('SET', key, ARGV[3], 'KEEPTTL')
end
return reply('ok')
