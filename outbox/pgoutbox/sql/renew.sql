-- Renews the shards that still have the name of the relay. A shard that another relay took has
-- another name. A locked row is left out: another relay is taking the shard, or a person retries or
-- skips a row.
WITH mine AS MATERIALIZED (
    SELECT shard FROM {shards} WHERE relay = $1 ORDER BY shard FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {shards} s SET lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
FROM mine m WHERE s.shard = m.shard
