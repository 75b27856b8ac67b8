-- Reads the catalog only, which needs no right on the tables.
SELECT (SELECT coalesce(string_agg(n, ', ' ORDER BY i), '')
        FROM unnest($2::text[]) WITH ORDINALITY AS r(n, i)
        WHERE to_regclass($1 || '.' || n) IS NULL),
       (SELECT coalesce(string_agg(c.relname::text, ', ' ORDER BY c.relname), '')
        FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid
        WHERE x.indrelid = to_regclass($1 || '.idem_outbox')
          AND NOT (x.indisvalid AND x.indisready)),
       (SELECT coalesce(bool_and(s.seqcache = 1 AND s.seqincrement > 0 AND NOT s.seqcycle), false)
        FROM pg_sequence s
        WHERE s.seqrelid = pg_get_serial_sequence($1 || '.idem_outbox', 'seq')::regclass),
       (SELECT coalesce(string_agg(g.right_ || ' on ' || g.name, ', '), '')
        FROM unnest($3::text[], $4::text[]) AS g(name, right_)
        WHERE NOT has_table_privilege(to_regclass($1 || '.' || g.name), g.right_))
