-- Key columns that are not compared byte by byte.
SELECT c.relname || '.' || a.attname
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid
JOIN pg_collation l ON l.oid = a.attcollation
WHERE c.oid IN ({tables})
  AND a.attname IN ('tenant', 'scope', 'event_type', 'event_id', 'topic')
  AND l.collname NOT IN ('C', 'POSIX')
ORDER BY 1
