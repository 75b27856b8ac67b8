-- Counts one more start of a record, unless its event is done: then its starts no longer matter.
WITH known AS MATERIALIZED (
    SELECT FROM {schema}.{events_read}
    WHERE ({key}) = ({one@8}) AND status = 'done'
), gone AS (
    DELETE FROM {schema}.event_starts
    WHERE (tenant, scope, event_type, event_id) = ($1, $2, $3, $4) AND starts > 0 AND EXISTS (SELECT FROM known)
), counted AS (
    INSERT INTO {schema}.event_starts AS e (tenant, scope, event_type, event_id, origin_topic, origin_partition, origin_offset)
    SELECT $1, $2, $3, $4, $5, $6, $7 WHERE NOT EXISTS (SELECT FROM known)
    ON CONFLICT (tenant, scope, event_type, event_id, origin_topic, origin_partition, origin_offset)
    DO UPDATE SET starts = e.starts + 1, updated_at = clock_timestamp()
    RETURNING starts
)
SELECT coalesce((SELECT starts FROM counted), 0)
