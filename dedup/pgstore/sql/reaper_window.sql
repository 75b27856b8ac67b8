-- The number of rows of a window, and when its last row expired: rows of all scopes that expired from
-- $1 on and before $2, at most $3. The next window begins behind its last row.
SELECT count(*), max(expires_at)
FROM (SELECT e.expires_at FROM {schema}.{table} e
      WHERE e.expires_at >= $1::timestamptz AND e.expires_at < $2::timestamptz
      ORDER BY e.expires_at LIMIT $3::bigint) w
