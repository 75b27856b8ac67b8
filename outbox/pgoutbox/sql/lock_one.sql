-- Locks aggregates in the order of the array. The scan of a function keeps the order of its rows.
SELECT pg_advisory_xact_lock(n) FROM unnest($1::bigint[]) AS n
