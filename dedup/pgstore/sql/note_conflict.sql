-- A copy of the event with another content. It is not a start and does not count. The event's own
-- row is not written, because a transaction may hold it.
INSERT INTO {schema}.event_starts (tenant, scope, event_type, event_id, origin_topic, origin_partition, origin_offset, starts)
VALUES ($1, $2, $3, $4, $5, $6, $7, 0)
ON CONFLICT DO NOTHING
