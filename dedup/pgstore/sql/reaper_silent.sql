-- Scopes that have rows, record no progress, and are not of the wall clock ($1): their rows are
-- never deleted. Only the rows of each table that expire first are read ($2: how many). Younger
-- rows ($3, microseconds) do not count: progress is recorded after the first events.
SELECT DISTINCT r.scope
FROM (
    (SELECT scope, created_at FROM {schema}.{events_read} ORDER BY expires_at LIMIT $2::bigint)
    UNION ALL
    (SELECT scope, created_at FROM {schema}.{keys_read} ORDER BY expires_at LIMIT $2::bigint)
) r
WHERE r.created_at < clock_timestamp() - $3::bigint * interval '1 microsecond'
  AND r.scope <> ALL ($1::text[])
  AND NOT EXISTS (SELECT FROM {schema}.idem_progress p WHERE p.scope = r.scope)
ORDER BY r.scope
