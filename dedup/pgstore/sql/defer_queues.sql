-- The queues of a partition in the order of their names. $5: whether to begin before all of them.
SELECT coalesce(k.name, k.queue) AS name, p.length,
       CASE WHEN NOT k.blocked THEN ceil(extract(epoch FROM k.due - clock_timestamp()) * 1000000)::bigint ELSE 0 END AS wait,
       k.blocked
FROM {schema}.deferred_queues k
CROSS JOIN LATERAL (
    SELECT count(*) AS length
    FROM {schema}.deferred_events p
    WHERE (p.scope, p.topic, p.queue) = (k.scope, k.topic, k.queue)
) p
WHERE k.scope = $1::text AND k.topic = $2::text AND k.partition = $3::integer AND (k.queue > $4::bytea OR $5::boolean)
ORDER BY k.queue
LIMIT $6::bigint
