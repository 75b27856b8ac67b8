-- The records of an ID ($2) in a scope ($1; empty: in all scopes). The ID is the last column of the
-- key. So the query walks the index from one kind to the next and probes each one, and reads no
-- table as a whole.
WITH RECURSIVE of_events AS (
    (SELECT tenant, scope, event_type FROM {schema}.{events} ORDER BY tenant, scope, event_type LIMIT 1)
    UNION ALL
    SELECT n.tenant, n.scope, n.event_type
    FROM of_events i
    CROSS JOIN LATERAL (
        SELECT k.tenant, k.scope, k.event_type
        FROM {schema}.{events} k
        WHERE (k.tenant, k.scope, k.event_type) > (i.tenant, i.scope, i.event_type)
        ORDER BY k.tenant, k.scope, k.event_type
        LIMIT 1
    ) n
), of_keys AS (
    (SELECT tenant, scope, event_type FROM {schema}.{keys} ORDER BY tenant, scope, event_type LIMIT 1)
    UNION ALL
    SELECT n.tenant, n.scope, n.event_type
    FROM of_keys i
    CROSS JOIN LATERAL (
        SELECT k.tenant, k.scope, k.event_type
        FROM {schema}.{keys} k
        WHERE (k.tenant, k.scope, k.event_type) > (i.tenant, i.scope, i.event_type)
        ORDER BY k.tenant, k.scope, k.event_type
        LIMIT 1
    ) n
)
SELECT e.*, 0::bigint AS n
FROM of_events i
CROSS JOIN LATERAL (
    SELECT {record_events}
    FROM {schema}.{events} k
    WHERE (k.tenant, k.scope, k.event_type, k.event_id) = (i.tenant, i.scope, i.event_type, $2::text)
    OFFSET 0
) e
WHERE i.scope = $1::text OR $1::text = ''
UNION ALL
SELECT e.*, 0::bigint AS n
FROM of_keys i
CROSS JOIN LATERAL (
    SELECT {record_keys}
    FROM {schema}.{keys} k
    WHERE (k.tenant, k.scope, k.event_type, k.event_id) = (i.tenant, i.scope, i.event_type, $2::text)
    OFFSET 0
) e
WHERE i.scope = $1::text OR $1::text = ''
ORDER BY tenant, scope, event_type, tx DESC
