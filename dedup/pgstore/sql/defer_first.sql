-- The first events of a queue, at most $4.
SELECT {event}
FROM {schema}.deferred_queues k
CROSS JOIN LATERAL (
    -- In the order of the primary key, as in defer_due.sql.
    SELECT *
    FROM {schema}.deferred_events p
    WHERE (p.scope, p.topic, p.queue) = (k.scope, k.topic, k.queue)
    ORDER BY p.seq
    LIMIT $4::bigint
) p
WHERE (k.scope, k.topic, k.queue) = ($1::text, $2::text, $3::bytea)
ORDER BY p.seq
