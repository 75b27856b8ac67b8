-- As in the readable layout. The retention begins anew.
UPDATE {schema}.{events} k
SET rest = jsonb_strip_nulls(k.rest || jsonb_build_object(
        'status', 'moved', 'generation', coalesce((k.rest ->> 'generation')::bigint, 0) + 1,
        'retry', NULL, 'reason', NULL, 'updated_at', clock_timestamp())),
    expires = greatest(k.expires, ceil(date_part('epoch', clock_timestamp() + (to_timestamp(k.expires * 60::float8)
        - coalesce((k.rest ->> 'updated_at')::timestamptz, to_timestamp(946684800 + k.made::float8)))) / 60)::integer)
WHERE ({k.key}) = ({one@1}) AND k.rest ->> 'status' = 'dead' AND coalesce(k.rest ->> 'record_version', '1') = '1'
RETURNING (k.rest ->> 'generation')::bigint
