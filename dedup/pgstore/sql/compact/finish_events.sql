-- As in the readable layout. Null values are left out of rest.
UPDATE {schema}.{events} k
SET rest = nullif(jsonb_strip_nulls(coalesce(k.rest, '{}') || jsonb_build_object(
        'status', nullif(r.status, 'done'),
        'retry', CASE WHEN r.status = 'moved' THEN nullif(r.retry, 0) ELSE (k.rest ->> 'retry')::bigint END,
        'reason', nullif(r.reason, ''),
        'schema_version', r.schema_version,
        'result', encode(r.result, 'base64'))), '{}'),
    expires = greatest(k.expires,
        ceil(date_part('epoch', clock_timestamp() + r.retention * interval '1 microsecond') / 60)::integer)
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[], {arrays@7})
     AS r(retention, status, reason, retry, schema_version, result, {key})
WHERE ({k.key}) = ({r.key})
