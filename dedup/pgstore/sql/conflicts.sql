SELECT origin_topic, origin_partition, origin_offset
FROM {schema}.event_starts
WHERE (tenant, scope, event_type, event_id) = ($1, $2, $3, $4) AND starts = 0
ORDER BY updated_at, origin_topic, origin_partition, origin_offset
LIMIT $5::bigint
