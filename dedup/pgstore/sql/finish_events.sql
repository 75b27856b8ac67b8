-- What a handler's completions change about rows that its transaction has claimed.
UPDATE {schema}.processed_events k
SET status = r.status,
    retry = CASE WHEN r.status = 'moved' THEN r.retry ELSE k.retry END,
    reason = nullif(r.reason, ''),
    schema_version = r.schema_version,
    result = r.result,
    expires_at = greatest(k.expires_at, clock_timestamp() + r.retention * interval '1 microsecond')
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::bigint[],
            $9::bigint[], $10::bytea[])
     AS r(tenant, scope, event_type, event_id, retention, status, reason, retry, schema_version, result)
WHERE (k.tenant, k.scope, k.event_type, k.event_id) = (r.tenant, r.scope, r.event_type, r.event_id)
