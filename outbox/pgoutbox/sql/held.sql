-- The rest of a lease is less than a lease where the shard was locked.
SELECT shard, epoch, (extract(epoch FROM lease_until - clock_timestamp()) * 1000000)::bigint * 1000
FROM {shards}
WHERE relay = $1 AND lease_until > clock_timestamp() ORDER BY shard
