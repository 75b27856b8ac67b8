rest = jsonb_strip_nulls(coalesce(k.rest, '{}') || jsonb_build_object(
            'status', NULL,
            'fence', coalesce((k.rest ->> 'fence')::bigint, 1) + 1,
            'retry', nullif(greatest(coalesce((k.rest ->> 'retry')::bigint, 0), l.to_retry), 0),
            'updated_at', clock_timestamp())),
        expires = greatest(k.expires,
            ceil(date_part('epoch', clock_timestamp() + l.retention * interval '1 microsecond') / 60)::integer)
