-- Lets queues ($3) have no turn for a while ($4, microseconds): their heads cannot run now. They are locked in the order in which
-- those lock them that put events into queues.
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
