-- now() is constant in a statement, so the index on ended_at can be used. clock_timestamp() is not.
WITH old AS MATERIALIZED (
    SELECT seq FROM {outbox}
    WHERE state = 1 AND ended_at < now() - $1::bigint * interval '1 microsecond'
    ORDER BY ended_at LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED)
DELETE FROM {outbox} o USING old WHERE o.seq = old.seq
