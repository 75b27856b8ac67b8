-- The deferred ones of some events of a topic. OFFSET as in look.sql.
SELECT {event}
FROM unnest($3::text[], $4::text[], $5::text[]) AS r(tenant, event_type, event_id)
CROSS JOIN LATERAL (
    SELECT *
    FROM {schema}.deferred_events p
    WHERE (p.scope, p.topic, p.tenant, p.event_type, p.event_id) = ($1::text, $2::text, r.tenant, r.event_type, r.event_id)
    OFFSET 0
) p
JOIN {schema}.deferred_queues k ON (k.scope, k.topic, k.queue) = (p.scope, p.topic, p.queue)
