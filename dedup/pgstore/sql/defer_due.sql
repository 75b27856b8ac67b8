-- The queues of a partition whose heads are due first, at most $4, with the heads that are due. The
-- clock is read once.
SELECT ceil(extract(epoch FROM k.due - k.now) * 1000000)::bigint AS next, {event}
FROM (
    SELECT k.*, c.now
    FROM (SELECT clock_timestamp() AS now OFFSET 0) c
    CROSS JOIN LATERAL (
        SELECT *
        FROM {schema}.deferred_queues
        WHERE scope = $1::text AND topic = $2::text AND partition = $3::integer AND NOT blocked
        ORDER BY due
        LIMIT $4::bigint
    ) k
) k
LEFT JOIN LATERAL (
    -- In the order of the primary key. Without statistics the planner may prefer the key of the
    -- events, and read the whole partition.
    SELECT *
    FROM {schema}.deferred_events p
    WHERE (p.scope, p.topic, p.queue) = (k.scope, k.topic, k.queue) AND p.seq >= k.head_seq
    ORDER BY p.seq
    LIMIT 1
) p ON k.due <= k.now
ORDER BY k.due
