-- Records that match, the least recently changed first. $3: their states, null for all; $4:
-- unchanged for how long, null for any; $5: claims whose lease has ended; $6: how many, null for
-- all.
DECLARE idem_list NO SCROLL CURSOR FOR
SELECT e.*, 0::bigint AS n
FROM (
    SELECT {record_events}
    FROM {schema}.{events_read} k
    WHERE NOT $5::boolean
    UNION ALL
    SELECT {record_keys}
    FROM {schema}.{keys_read} k
    WHERE NOT $5::boolean OR k.status = 'claimed' AND k.lease_until <= clock_timestamp()
) e
WHERE (e.scope = $1::text OR $1::text = '')
  AND (e.event_type = $2::text OR $2::text = '')
  AND ($3::text[] IS NULL OR e.status = ANY ($3::text[]))
  AND ($4::bigint IS NULL OR e.changed <= clock_timestamp() - $4::bigint * interval '1 microsecond')
ORDER BY e.changed, e.tenant, e.scope, e.event_type, e.event_id, e.tx
LIMIT $6::bigint
