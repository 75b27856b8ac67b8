-- The first event of a queue.
SELECT {event}
FROM {schema}.parked_keys k
JOIN {schema}.parked p ON (p.scope, p.topic, p.queue, p.seq) = (k.scope, k.topic, k.queue, k.head_seq)
WHERE (k.scope, k.topic, k.queue) = ($1::text, $2::text, $3::bytea)
