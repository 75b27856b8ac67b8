-- Adds kinds that have no number. It tries only those, because each try uses up a number (P-20).
INSERT INTO {schema}.idem_kinds (tenant, scope, event_type, form)
SELECT r.tenant, r.scope, r.event_type, r.form
FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[]) AS r(tenant, scope, event_type, form)
WHERE NOT EXISTS (
    SELECT FROM {schema}.idem_kinds k
    WHERE (k.tenant, k.scope, k.event_type, k.form) = (r.tenant, r.scope, r.event_type, r.form)
)
ORDER BY r.tenant COLLATE "C", r.scope COLLATE "C", r.event_type COLLATE "C", r.form
ON CONFLICT (tenant, scope, event_type, form) DO NOTHING
