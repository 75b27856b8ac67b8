-- Gives up the shards above the share of the relay.
WITH fair AS (
    SELECT ceil($2::numeric / greatest(1, count(*)))::bigint AS share
    FROM {relays} WHERE alive_until > clock_timestamp()),
surplus AS MATERIALIZED (
    SELECT shard FROM {shards} WHERE relay = $1 ORDER BY shard
    OFFSET (SELECT share FROM fair) FOR UPDATE SKIP LOCKED)
UPDATE {shards} s SET relay = NULL, lease_until = NULL FROM surplus u WHERE s.shard = u.shard
