SELECT shard, epoch FROM {shards}
WHERE relay = $1 AND lease_until > clock_timestamp() ORDER BY shard
