-- The descriptors on record of these types.
SELECT event_type, descriptor FROM {schema}.idem_descriptors
WHERE scope = $1::text AND event_type = ANY ($2::text[])
ORDER BY event_type
