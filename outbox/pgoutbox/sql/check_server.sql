SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
       pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean,
       current_setting('synchronous_commit') = 'off' OR NOT current_setting('fsync')::boolean
