-- Gives up an unknown key ($1: the reason; $2: the retention).
INSERT INTO {schema}.{table} ({key}, status, reason, expires_at)
SELECT {one@3}, 'dead', $1::text, clock_timestamp() + $2::bigint * interval '1 microsecond'
ON CONFLICT ({key}) DO NOTHING
