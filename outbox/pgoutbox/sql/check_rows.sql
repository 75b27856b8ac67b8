SELECT (SELECT count(*) FROM {shards} WHERE shard >= 0 AND shard < $1::int),
       (SELECT coalesce(max(version), 0) FROM {schema_version}),
       -- Reading the last number of the sequence needs a right of its own. The number is read after
       -- the rows, and is never less than theirs.
       CASE WHEN has_sequence_privilege(
               pg_get_serial_sequence($2 || '.idem_outbox', 'seq'), 'USAGE, SELECT')
           THEN coalesce((SELECT max(seq) FROM {outbox})
                         > coalesce(pg_sequence_last_value(
                               pg_get_serial_sequence($2 || '.idem_outbox', 'seq')::regclass), 0),
                         false)
           ELSE false END
