-- Lets a dead row wait for a copy of the next generation. Its retention begins anew.
UPDATE {schema}.{table}
SET status = 'moved', generation = generation + 1, retry = 0, reason = NULL,
    expires_at = greatest(expires_at, clock_timestamp() + (expires_at - coalesce(updated_at, created_at))),
    updated_at = clock_timestamp(){clear}
WHERE ({key}) = ({one@1}) AND status = 'dead' AND record_version = 1
RETURNING generation
