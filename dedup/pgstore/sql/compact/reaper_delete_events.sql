-- Like reaper_delete.sql. The times are expressions: the first is literally that of the index.
WITH gone AS (
    DELETE FROM {schema}.{events} k
    WHERE k.ctid = ANY (ARRAY(
        SELECT e.ctid FROM {schema}.{events} e
        WHERE {of_scope} AND to_timestamp(e.expires * 60::float8) >= $3::timestamptz
          AND to_timestamp(e.expires * 60::float8) < $4::timestamptz
          AND to_timestamp(946684800 + e.made::float8) <= $5::timestamptz
          AND (e.origin_time IS NULL OR e.origin_time < $5::timestamptz)
          AND NOT (e.rest IS NOT NULL AND (e.rest ->> 'status' = 'dead' OR e.rest ? 'generation') IS TRUE
                   AND coalesce((e.rest ->> 'updated_at')::timestamptz, to_timestamp(946684800 + e.made::float8))
                       > clock_timestamp() - $6::bigint * interval '1 microsecond')
        ORDER BY to_timestamp(e.expires * 60::float8)
        LIMIT $2::bigint
        FOR UPDATE SKIP LOCKED))
    RETURNING to_timestamp(k.expires * 60::float8) AS expires_at
)
SELECT count(*), max(expires_at) FROM gone
