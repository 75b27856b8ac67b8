-- Locks the outbox, shared, and then one aggregate. The server gets the row of the subquery first;
-- OFFSET 0 keeps the two apart.
SELECT pg_advisory_xact_lock($2::bigint)
FROM (SELECT pg_advisory_xact_lock_shared($1::bigint) OFFSET 0) whole
