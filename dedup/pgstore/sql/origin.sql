-- Sets the origin of a dead event: the delivery whose dead letter was sent. $5: tokens of claims,
-- as ended just before. Of claims, only rows that this transaction has ended are locked: to lock
-- others could make two repeats wait for each other.
UPDATE {schema}.{table} k
SET origin_topic = r.topic, origin_partition = r.part, origin_offset = r.pos, origin_time = r.at
FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::timestamptz[], $5::uuid[], {arrays@6})
     AS r(topic, part, pos, at, token, {key})
WHERE ({k.key}) = ({r.key}) AND {status} = 'dead' {held}
