-- Takes an event out of its queue, which is locked, unless it went on to where the caller does not know it.
DELETE FROM {schema}.parked
WHERE (scope, topic, tenant, event_type, event_id) = ($1::text, $2::text, $4::text, $5::text, $6::text)
  AND queue = $3::bytea AND generation = $7::bigint AND retry <= $8::bigint
