WITH mine AS MATERIALIZED (SELECT shard FROM {shards} WHERE relay = $1 ORDER BY shard FOR UPDATE)
UPDATE {shards} s SET relay = NULL, lease_until = NULL FROM mine m WHERE s.shard = m.shard
