-- Stores the descriptors.
INSERT INTO {schema}.idem_descriptors AS k (scope, event_type, descriptor)
SELECT $1::text, r.event_type, r.descriptor
FROM unnest($2::text[], $3::text[]) AS r(event_type, descriptor)
ORDER BY r.event_type COLLATE "C"
ON CONFLICT (scope, event_type) DO UPDATE
SET descriptor = excluded.descriptor, updated_at = clock_timestamp()
WHERE k.descriptor <> excluded.descriptor
