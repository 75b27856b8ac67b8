-- Takes free or expired shards, up to the share of the relay, which is that of give.sql.
-- MATERIALIZED: the limit is evaluated once (O-06).
WITH fair AS (
    SELECT a.shards / a.relays + CASE WHEN a.before < a.shards % a.relays THEN 1 ELSE 0 END AS share
    FROM (SELECT $3::bigint AS shards, greatest(1, count(*)) AS relays,
                 count(*) FILTER (WHERE relay < $1) AS before
          FROM {relays} WHERE alive_until > clock_timestamp()) a),
free AS MATERIALIZED (
    SELECT shard FROM {shards}
    WHERE relay IS NULL OR (relay <> $1 AND lease_until <= clock_timestamp())
    ORDER BY shard
    LIMIT (SELECT greatest(0, share - (SELECT count(*) FROM {shards} WHERE relay = $1)) FROM fair)
    FOR UPDATE SKIP LOCKED)
UPDATE {shards} s SET relay = $1, epoch = s.epoch + 1,
    lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
FROM free f WHERE s.shard = f.shard
