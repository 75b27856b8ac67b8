-- As in the readable layout. The partitions have their numbers.
UPDATE {schema}.{table} k
SET origin = o.origin, origin_offset = r.pos,
    origin_time = date_trunc('milliseconds', r.at) -- and its checksum
        + coalesce(k.origin_time - date_trunc('milliseconds', k.origin_time), interval '0')
FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::timestamptz[], $5::uuid[], {arrays@6})
     AS r(topic, part, pos, at, token, {key})
JOIN {schema}.idem_origins o ON (o.topic, o.partition) = (r.topic, r.part)
WHERE ({k.key}) = ({r.key}) AND {status} = 'dead' {held}
