DELETE FROM {schema}.event_starts WHERE (tenant, scope, event_type, event_id) = ($1, $2, $3, $4)
