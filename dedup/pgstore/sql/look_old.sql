UNION ALL
SELECT r.n, 'too-old', 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM ({requests}) r
WHERE r.old AND NOT EXISTS (
    SELECT FROM {schema}.{table} k
    WHERE ({k.key}) = ({r.key})
)
