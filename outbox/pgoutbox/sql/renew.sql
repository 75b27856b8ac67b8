-- Renews what still has the relay's name: what somebody else took has another one. A row that is locked is left as it is: it is
-- being taken, or a person acts on its rows.
WITH mine AS MATERIALIZED (
    SELECT shard FROM {shards} WHERE relay = $1 ORDER BY shard FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {shards} s SET lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
FROM mine m WHERE s.shard = m.shard
