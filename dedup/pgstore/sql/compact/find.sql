-- As in the readable layout. The kinds are a table here. $2: the form of the ID.
WITH i AS MATERIALIZED (
    SELECT kind FROM {schema}.idem_kinds WHERE (scope = $1::text OR $1::text = '') AND form = $2::smallint
)
SELECT e.*, 0::bigint AS n
FROM i
CROSS JOIN LATERAL (
    SELECT {record_events} FROM {schema}.{events_read} k WHERE (k.kind, k.id) = (i.kind, $3::uuid) OFFSET 0
) e
UNION ALL
SELECT e.*, 0::bigint AS n
FROM i
CROSS JOIN LATERAL (
    SELECT {record_keys} FROM {schema}.{keys_read} k WHERE (k.kind, k.id) = (i.kind, $3::uuid) OFFSET 0
) e
ORDER BY tenant, scope, event_type, tx DESC
