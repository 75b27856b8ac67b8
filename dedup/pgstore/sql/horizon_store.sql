-- Moves the horizon of a scope ($1) to the newest of the rows that expired before its consumed time
-- ($2). Rows of dead letters within their retention ($3) do not count. No row is deleted yet: a
-- running claim may not have seen the horizon. $5: the step reads rows that expired from this time
-- on. $4 bounds the rows of a table that one step reads. If there are more, the cut-off is the last
-- row read. After $4 rows of one expiry, the next step begins a microsecond later. more: there may be
-- other expired rows. A step from a cut-off that finds no row moves the cut-off only.
WITH events AS (
    SELECT count(*) AS n, max(created_at) AS made, max(expires_at) AS last
    FROM (SELECT created_at, expires_at FROM {schema}.{events_read}
          WHERE {of_scope} AND expires_at >= $5::timestamptz AND expires_at < $2::timestamptz
            AND NOT ((status = 'dead' OR generation > 0)
                     AND coalesce(updated_at, created_at) > clock_timestamp() - $3::bigint * interval '1 microsecond')
          ORDER BY expires_at LIMIT $4::bigint) e
), keys AS (
    SELECT count(*) AS n, max(created_at) AS made, max(expires_at) AS last
    FROM (SELECT created_at, expires_at FROM {schema}.{keys_read}
          WHERE {of_scope} AND expires_at >= $5::timestamptz AND expires_at < $2::timestamptz
            AND NOT ((status = 'dead' OR generation > 0)
                     AND updated_at > clock_timestamp() - $3::bigint * interval '1 microsecond')
          ORDER BY expires_at LIMIT $4::bigint) k
)
INSERT INTO {schema}.idem_horizons AS h (scope, before, cutoff)
SELECT $1::text, coalesce(greatest(events.made, keys.made), '-infinity'),
       least($2::timestamptz,
             CASE WHEN events.n = $4::bigint THEN greatest(events.last, $5::timestamptz + interval '1 microsecond') END,
             CASE WHEN keys.n = $4::bigint THEN greatest(keys.last, $5::timestamptz + interval '1 microsecond') END)
FROM events, keys
WHERE events.n + keys.n > 0 OR $5::timestamptz > '-infinity'
ON CONFLICT (scope) DO UPDATE
SET before = greatest(h.before, excluded.before), cutoff = excluded.cutoff, updated_at = clock_timestamp()
RETURNING before, cutoff < $2::timestamptz AS more
