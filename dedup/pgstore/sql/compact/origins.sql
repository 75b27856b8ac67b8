-- Numbers of partitions, in the order of the arguments.
SELECT r.n, o.origin
FROM unnest($1::text[], $2::integer[]) WITH ORDINALITY AS r(topic, part, n)
JOIN {schema}.idem_origins o ON (o.topic, o.partition) = (r.topic, r.part)
