-- As in the readable layout. The order is that of the rows' own keys, in which all statements lock
-- them. The clock is read once.
INSERT INTO {schema}.processed_events_compact (kind, id, origin, origin_offset, origin_time, made, expires, rest)
SELECT {kind}, r.id, r.origin, r.pos,
       date_trunc('milliseconds', r.at)
           + CASE WHEN octet_length({fingerprint}) = 2 THEN 256 * get_byte({fingerprint}, 0) + get_byte({fingerprint}, 1)
                  ELSE 0 END * interval '1 microsecond',
       ceil(c.now - 946684800)::integer,
       ceil((c.now + {retention} / 1e6::float8) / 60)::integer,
       CASE WHEN octet_length({fingerprint}) > 2 OR {generation} <> 0 OR {retry} <> 0
            THEN jsonb_strip_nulls(jsonb_build_object('fingerprint',
                                                      CASE WHEN octet_length({fingerprint}) > 2 THEN encode(substr({fingerprint}, 1, 16), 'hex') END,
                                                      'generation', nullif({generation}, 0), 'retry', nullif({retry}, 0))) END
FROM (SELECT date_part('epoch', clock_timestamp()) AS now OFFSET 0) c
CROSS JOIN unnest($3::integer[], $4::uuid[], $10::timestamptz[], $11::bigint[]{arrays}) AS r(origin, id, at, pos{columns})
WHERE ({too_old}) IS NOT TRUE{turn}
ORDER BY {kind}, r.id
ON CONFLICT (kind, id) DO NOTHING
{returning}
