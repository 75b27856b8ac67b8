INSERT INTO {schema}.event_starts AS e (tenant, scope, event_type, event_id) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, scope, event_type, event_id)
DO UPDATE SET starts = e.starts + 1, updated_at = clock_timestamp()
RETURNING starts
