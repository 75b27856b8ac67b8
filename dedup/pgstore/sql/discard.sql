-- Gives an event up ($1: the reason; $2: the retention). A worker with a claim on it loses the
-- claim.
UPDATE {schema}.{table}
SET status = 'dead', reason = $1::text, schema_version = NULL, result = NULL,
    expires_at = greatest(expires_at, clock_timestamp() + $2::bigint * interval '1 microsecond'),
    updated_at = clock_timestamp(){clear}
WHERE ({key}) = ({one@3})
