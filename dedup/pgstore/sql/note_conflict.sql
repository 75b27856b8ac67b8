-- A copy of the event with another content. It has not started: nobody counts it. The event's own row stays untouched, since
-- a transaction may hold it.
INSERT INTO {schema}.event_starts (tenant, scope, event_type, event_id, origin_topic, origin_partition, origin_offset, starts)
VALUES ($1, $2, $3, $4, $5, $6, $7, 0)
ON CONFLICT DO NOTHING
