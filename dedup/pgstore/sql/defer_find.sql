-- A deferred event of a topic.
SELECT {event}
FROM {schema}.deferred_events p
JOIN {schema}.deferred_queues k ON (k.scope, k.topic, k.queue) = (p.scope, p.topic, p.queue)
WHERE (p.scope, p.topic, p.tenant, p.event_type, p.event_id) = ($1::text, $2::text, $3::text, $4::text, $5::text)
