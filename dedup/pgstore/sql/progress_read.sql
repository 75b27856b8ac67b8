-- How far a scope ($1) has consumed topics ($2).
SELECT topic, partition, next_offset
FROM {schema}.idem_progress
WHERE scope = $1::text AND topic = ANY ($2::text[])
ORDER BY topic, partition
