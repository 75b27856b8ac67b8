-- Removes events from their queue, which is locked. An event at a later position than the caller's
-- stays.
DELETE FROM {schema}.deferred_events p
USING unnest($4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[]) AS r(tenant, event_type, event_id, generation, retry)
WHERE (p.scope, p.topic, p.tenant, p.event_type, p.event_id) = ($1::text, $2::text, r.tenant, r.event_type, r.event_id)
  AND p.queue = $3::bytea AND p.generation = r.generation AND p.retry <= r.retry
