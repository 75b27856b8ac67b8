-- The first events of a queue, at most $4.
SELECT {event}
FROM {schema}.parked_keys k
JOIN {schema}.parked p ON (p.scope, p.topic, p.queue) = (k.scope, k.topic, k.queue)
WHERE (k.scope, k.topic, k.queue) = ($1::text, $2::text, $3::bytea)
ORDER BY p.seq
LIMIT $4::bigint
