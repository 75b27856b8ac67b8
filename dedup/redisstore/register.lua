-- Records a scope: its group, its topics and the descriptors of its types. The key is a hash, not
-- an event's. ARGV[1] is the token of the call, ARGV[2] 1 if other descriptors are accepted,
-- ARGV[3] the group, ARGV[4] how many topics follow; then pairs of a type and its descriptor.
-- Replies: ok, changed (which pair, and the descriptor on record).
local key, token = KEYS[1], ARGV[1]
local descriptors = 5 + tonumber(ARGV[4])

if ARGV[2] ~= '1' then
  for i = descriptors, #ARGV, 2 do
    local known = redis.call('HGET', key, 'descriptor:' .. ARGV[i])
    if known and known ~= ARGV[i + 1] then
      return { token, 'changed', (i - descriptors) / 2, known }
    end
  end
end

redis.call('HSET', key, 'group', ARGV[3])
for i = 5, descriptors - 1 do
  redis.call('HSET', key, 'topic:' .. ARGV[i], '1')
end
for i = descriptors, #ARGV, 2 do
  redis.call('HSET', key, 'descriptor:' .. ARGV[i], ARGV[i + 1])
end
return { token, 'ok', 0, '' }
