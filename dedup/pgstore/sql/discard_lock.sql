-- Locks the row against other changes until the commit.
SELECT FROM {schema}.{table} WHERE ({key}) = ({one@1}) FOR UPDATE
