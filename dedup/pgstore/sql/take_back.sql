-- Claims of events that never ran, committed by the handler of another one ($5 is its transaction), wait for their copies
-- again: whoever comes at the same attempt is granted.
WITH held AS MATERIALIZED (
    SELECT k.tenant, k.scope, k.event_type, k.event_id
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS r(tenant, scope, event_type, event_id)
    JOIN {schema}.processed_events k
      ON (k.tenant, k.scope, k.event_type, k.event_id) = (r.tenant, r.scope, r.event_type, r.event_id)
    WHERE k.xmin = $5::text::xid AND k.status = 'done'
    ORDER BY k.tenant, k.scope, k.event_type, k.event_id
    FOR UPDATE OF k
)
UPDATE {schema}.processed_events k
SET status = 'moved', updated_at = clock_timestamp()
FROM held h
WHERE (k.tenant, k.scope, k.event_type, k.event_id) = (h.tenant, h.scope, h.event_type, h.event_id)
