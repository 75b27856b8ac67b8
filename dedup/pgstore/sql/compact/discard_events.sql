-- As in the readable layout.
UPDATE {schema}.{events}
SET rest = jsonb_strip_nulls(coalesce(rest, '{}') || jsonb_build_object(
        'status', 'dead', 'reason', $1::text, 'schema_version', NULL, 'result', NULL, 'updated_at', clock_timestamp())),
    expires = greatest(expires,
        ceil(date_part('epoch', clock_timestamp() + $2::bigint * interval '1 microsecond') / 60)::integer)
WHERE ({key}) = ({one@3})
