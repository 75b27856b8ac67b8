-- The last column is the rest of the lease in nanoseconds. It is less than a whole lease where the
-- shard was locked.
SELECT shard, epoch, (extract(epoch FROM lease_until - clock_timestamp()) * 1000000)::bigint * 1000
FROM {shards}
WHERE relay = $1 AND lease_until > clock_timestamp() ORDER BY shard
