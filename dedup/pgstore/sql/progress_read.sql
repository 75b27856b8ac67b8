-- The next offset of a scope ($1) in topics ($2).
SELECT topic, partition, next_offset
FROM {schema}.idem_progress
WHERE scope = $1::text AND topic = ANY ($2::text[])
ORDER BY topic, partition
