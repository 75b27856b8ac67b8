-- The records of keys, in their order: transactional ones before claims.
SELECT e.*, r.n
FROM unnest({arrays@1}) WITH ORDINALITY AS r({key}, n)
CROSS JOIN LATERAL (
    SELECT {record_events}
    FROM {schema}.{events_read} k
    WHERE ({k.key}) = ({r.key})
    OFFSET 0
) e
UNION ALL
SELECT e.*, r.n
FROM unnest({arrays@1}) WITH ORDINALITY AS r({key}, n)
CROSS JOIN LATERAL (
    SELECT {record_keys}
    FROM {schema}.{keys_read} k
    WHERE ({k.key}) = ({r.key})
    OFFSET 0
) e
ORDER BY n, tx DESC
