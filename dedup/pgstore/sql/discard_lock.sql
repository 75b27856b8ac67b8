-- Nobody else changes the row until the commit.
SELECT FROM {schema}.{table} WHERE ({key}) = ({one@1}) FOR UPDATE
