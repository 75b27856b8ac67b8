-- Key columns that are not compared byte by byte.
SELECT c.relname || '.' || a.attname
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid
JOIN pg_collation l ON l.oid = a.attcollation
WHERE c.oid IN ('{schema}.processed_events'::regclass, '{schema}.idempotency_keys'::regclass,
                '{schema}.event_starts'::regclass)
  AND a.attname IN ('tenant', 'scope', 'event_type', 'event_id')
  AND l.collname NOT IN ('C', 'POSIX')
ORDER BY 1
