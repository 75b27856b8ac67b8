-- Ends claims. A repeat finds its own last word and changes nothing.
WITH r AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::bigint[], $7::text[],
                         $8::text[], $9::bigint[], $10::bigint[], $11::bytea[]) WITH ORDINALITY
             AS r(tenant, scope, event_type, event_id, token, retention, status, reason, retry, schema_version, result, n)
), held AS MATERIALIZED (
    SELECT r.*, k.status = 'claimed' AS open
    FROM r JOIN {schema}.idempotency_keys k
      ON (k.tenant, k.scope, k.event_type, k.event_id) = (r.tenant, r.scope, r.event_type, r.event_id)
    WHERE k.token = r.token AND k.status IN ('claimed', 'done', 'dead', 'moved')
    ORDER BY k.tenant, k.scope, k.event_type, k.event_id
    FOR UPDATE OF k
), ended AS (
    UPDATE {schema}.idempotency_keys k
    SET status = h.status,
        retry = CASE WHEN h.status = 'moved' THEN h.retry ELSE k.retry END,
        reason = nullif(h.reason, ''),
        schema_version = h.schema_version,
        result = h.result,
        lease_until = NULL,
        expires_at = greatest(k.expires_at, clock_timestamp() + h.retention * interval '1 microsecond'),
        updated_at = clock_timestamp()
    FROM held h
    WHERE h.open
      AND (k.tenant, k.scope, k.event_type, k.event_id) = (h.tenant, h.scope, h.event_type, h.event_id)
)
SELECT n FROM held
