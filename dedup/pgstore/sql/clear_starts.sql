DELETE FROM {schema}.event_starts
WHERE (tenant, scope, event_type, event_id, origin_topic, origin_partition, origin_offset) = ($1, $2, $3, $4, $5, $6, $7)
