-- The state of a key, in both tables.
SELECT true AS tx, status, record_version FROM {schema}.{events_read} WHERE ({key}) = ({one@1})
UNION ALL
SELECT false, status, record_version FROM {schema}.{keys_read} WHERE ({key}) = ({one@1})
