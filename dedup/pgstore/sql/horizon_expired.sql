-- A summary of the rows of a scope ($1) that expired in a window, from $2 on and before $3, at most $4.
-- Rows of dead letters within their retention ($5) do not count.
SELECT count(*), max(created_at), max(expires_at)
FROM (SELECT created_at, expires_at FROM {schema}.{table}
      WHERE {of_scope} AND expires_at >= $2::timestamptz AND expires_at < $3::timestamptz
        AND NOT ((status = 'dead' OR generation > 0)
                 AND coalesce(updated_at, created_at) > clock_timestamp() - $5::bigint * interval '1 microsecond')
      ORDER BY expires_at LIMIT $4::bigint) e
