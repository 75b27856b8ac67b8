-- Restores a record that an unconditional completion has replaced: ARGV[2] is the value that it
-- wrote, ARGV[3] the one to restore. A record that has changed again stays. Replies: ok.
if raw == ARGV[2] then
  redis.call('SET', key, ARGV[3], 'KEEPTTL')
end
return reply('ok')
