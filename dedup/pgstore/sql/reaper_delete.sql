-- Deletes a batch of rows of a scope ($1): expired before the cut-off ($4) and made before the
-- horizon ($5), by both clocks. The batch begins where the last one ended ($3); otherwise it would
-- read the dead rows of all earlier batches. Locked rows stay for a later run. $2: the size; $6:
-- the retention of dead letters.
WITH gone AS (
    DELETE FROM {schema}.{table} k
    WHERE k.ctid = ANY (ARRAY(
        SELECT e.ctid FROM {schema}.{table} e
        WHERE {of_scope} AND e.expires_at >= $3::timestamptz AND e.expires_at < $4::timestamptz
          AND e.created_at <= $5::timestamptz AND (e.origin_time IS NULL OR e.origin_time < $5::timestamptz)
          AND NOT ((e.status = 'dead' OR e.generation > 0)
                   AND coalesce(e.updated_at, e.created_at) > clock_timestamp() - $6::bigint * interval '1 microsecond')
        ORDER BY e.expires_at
        LIMIT $2::bigint
        FOR UPDATE SKIP LOCKED))
    RETURNING k.expires_at
)
SELECT count(*), max(expires_at) FROM gone
