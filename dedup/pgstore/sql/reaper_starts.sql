-- Deletes starts and noted conflicts that have not changed for a day: their events are elsewhere by
-- now.
WITH gone AS (
    DELETE FROM {schema}.event_starts k
    WHERE k.ctid = ANY (ARRAY(
        SELECT e.ctid FROM {schema}.event_starts e
        WHERE e.updated_at < clock_timestamp() - interval '1 day'
        LIMIT $1::bigint
        FOR UPDATE SKIP LOCKED))
    RETURNING 1
)
SELECT count(*) FROM gone
