-- Postpones queues ($3) by a time ($4, microseconds), because their heads cannot run now. They are
-- locked in the same order as by defer_insert.sql.
UPDATE {schema}.deferred_queues k
SET due = greatest(k.due, clock_timestamp() + $4::bigint * interval '1 microsecond')
FROM (
    SELECT scope, topic, queue
    FROM {schema}.deferred_queues
    WHERE scope = $1::text AND topic = $2::text AND queue = ANY ($3::bytea[]) AND NOT blocked
    ORDER BY queue
    FOR UPDATE
) d
WHERE (k.scope, k.topic, k.queue) = (d.scope, d.topic, d.queue)
