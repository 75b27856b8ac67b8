-- Gives up the shards above the share of the relay. The remainder of the division goes to the first
-- relays by name. So the shares add up to all shards, and none moves without need.
WITH fair AS (
    SELECT a.shards / a.relays + CASE WHEN a.before < a.shards % a.relays THEN 1 ELSE 0 END AS share
    FROM (SELECT $2::bigint AS shards, greatest(1, count(*)) AS relays,
                 count(*) FILTER (WHERE relay < $1) AS before
          FROM {relays} WHERE alive_until > clock_timestamp()) a),
surplus AS MATERIALIZED (
    SELECT shard FROM {shards} WHERE relay = $1 ORDER BY shard
    OFFSET (SELECT share FROM fair) FOR UPDATE SKIP LOCKED)
UPDATE {shards} s SET relay = NULL, lease_until = NULL FROM surplus u WHERE s.shard = u.shard
