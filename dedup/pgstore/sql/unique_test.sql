-- The same key again: one row the first time, none the second.
INSERT INTO {schema}.{table} (tenant, scope, event_type, event_id{columns})
VALUES ('', 'idem.check', '', $1{values})
ON CONFLICT (tenant, scope, event_type, event_id{key}) DO NOTHING
