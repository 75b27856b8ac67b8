-- Numbers of kinds, in the order of the arguments.
SELECT r.n, k.kind
FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[]) WITH ORDINALITY AS r(tenant, scope, event_type, form, n)
JOIN {schema}.idem_kinds k
  ON (k.tenant, k.scope, k.event_type, k.form) = (r.tenant, r.scope, r.event_type, r.form)
