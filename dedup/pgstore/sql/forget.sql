-- Removes the records of a key ($1, $2, $3, $4), unless a live claim exists. Returns whether there
-- is one, whether another release wrote the records, and the number of deleted rows.
WITH claims AS MATERIALIZED (
    SELECT record_version <> 1 AS other, status = 'claimed' AND lease_until > clock_timestamp() AS live
    FROM {schema}.{keys}
    WHERE ({key}) = ({one@5})
    FOR UPDATE
), stops AS MATERIALIZED (
    SELECT coalesce((SELECT live FROM claims), false) AS live,
           coalesce((SELECT other FROM claims), false)
           OR EXISTS (SELECT FROM {schema}.{events_read} WHERE ({key}) = ({one@5}) AND record_version <> 1) AS other
), of_keys AS (
    DELETE FROM {schema}.{keys} WHERE ({key}) = ({one@5}) AND NOT (SELECT live OR other FROM stops) RETURNING 1
), of_events AS (
    DELETE FROM {schema}.{events} WHERE ({key}) = ({one@5}) AND NOT (SELECT live OR other FROM stops) RETURNING 1
), starts AS (
    DELETE FROM {schema}.event_starts
    WHERE (tenant, scope, event_type, event_id) = ($1::text, $2::text, $3::text, $4::text)
      AND NOT (SELECT live OR other FROM stops)
    RETURNING 1
)
SELECT live, other,
       (SELECT count(*) FROM of_keys) + (SELECT count(*) FROM of_events) + (SELECT count(*) FROM starts)
FROM stops
