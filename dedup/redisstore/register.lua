-- Records a scope: its group, its topics and the recipes of its types. The key is a hash, not an
-- event's. ARGV[1] is the token of the call, ARGV[2] 1 if other recipes are accepted, ARGV[3] the
-- group, ARGV[4] how many topics follow; then pairs of a type and its recipe. Replies: ok, changed
-- (which pair, and the recipe on record).
local key, token = KEYS[1], ARGV[1]
local recipes = 5 + tonumber(ARGV[4])

if ARGV[2] ~= '1' then
  for i = recipes, #ARGV, 2 do
    local known = redis.call('HGET', key, 'recipe:' .. ARGV[i])
    if known and known ~= ARGV[i + 1] then
      return { token, 'changed', (i - recipes) / 2, known }
    end
  end
end

redis.call('HSET', key, 'group', ARGV[3])
for i = 5, recipes - 1 do
  redis.call('HSET', key, 'topic:' .. ARGV[i], '1')
end
for i = recipes, #ARGV, 2 do
  redis.call('HSET', key, 'recipe:' .. ARGV[i], ARGV[i + 1])
end
return { token, 'ok', 0, '' }
