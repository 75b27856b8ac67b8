-- Adds partitions that have no number. It tries only those, because each try uses up a number
-- (P-20).
INSERT INTO {schema}.idem_origins (topic, partition)
SELECT r.topic, r.part
FROM unnest($1::text[], $2::integer[]) AS r(topic, part)
WHERE NOT EXISTS (SELECT FROM {schema}.idem_origins o WHERE (o.topic, o.partition) = (r.topic, r.part))
ORDER BY r.topic COLLATE "C", r.part
ON CONFLICT (topic, partition) DO NOTHING
