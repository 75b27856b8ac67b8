-- A record becomes that of an event that was given up ($1: why; $2: for how long it is kept). Whoever holds a claim has lost it.
UPDATE {schema}.{table}
SET status = 'dead', reason = $1::text, schema_version = NULL, result = NULL,
    expires_at = greatest(expires_at, clock_timestamp() + $2::bigint * interval '1 microsecond'),
    updated_at = clock_timestamp(){clear}
WHERE ({key}) = ({one@3})
