-- Leases begin anew. A row outlives its lease by as much as before.
WITH r AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::uuid[]) WITH ORDINALITY
             AS r(tenant, scope, event_type, event_id, token, n)
), held AS MATERIALIZED (
    SELECT r.*
    FROM r JOIN {schema}.idempotency_keys k
      ON (k.tenant, k.scope, k.event_type, k.event_id) = (r.tenant, r.scope, r.event_type, r.event_id)
    WHERE k.token = r.token AND k.status = 'claimed'
    ORDER BY k.tenant, k.scope, k.event_type, k.event_id
    FOR UPDATE OF k
), renewed AS (
    UPDATE {schema}.idempotency_keys k
    SET lease_until = clock_timestamp() + $6::bigint * interval '1 microsecond',
        expires_at = clock_timestamp() + $6::bigint * interval '1 microsecond' + (k.expires_at - k.lease_until),
        updated_at = clock_timestamp()
    FROM held h
    WHERE (k.tenant, k.scope, k.event_type, k.event_id) = (h.tenant, h.scope, h.event_type, h.event_id)
)
SELECT n FROM held
