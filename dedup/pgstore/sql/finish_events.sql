-- Writes completions into rows that the transaction has claimed.
UPDATE {schema}.{events} k
SET status = r.status,
    retry = CASE WHEN r.status = 'moved' THEN r.retry ELSE k.retry END,
    reason = nullif(r.reason, ''),
    schema_version = r.schema_version,
    result = r.result,
    expires_at = greatest(k.expires_at, clock_timestamp() + r.retention * interval '1 microsecond')
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[], {arrays@7})
     AS r(retention, status, reason, retry, schema_version, result, {key})
WHERE ({k.key}) = ({r.key})
