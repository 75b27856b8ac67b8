-- A key that nobody knew is given up ($1: why; $2: for how long that is kept).
INSERT INTO {schema}.{table} ({key}, status, reason, expires_at)
SELECT {one@3}, 'dead', $1::text, clock_timestamp() + $2::bigint * interval '1 microsecond'
ON CONFLICT ({key}) DO NOTHING
