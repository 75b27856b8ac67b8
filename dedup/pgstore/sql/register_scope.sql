-- Makes registrations of one scope wait for each other until they commit.
INSERT INTO {schema}.idem_scopes AS s (scope) VALUES ($1::text)
ON CONFLICT (scope) DO UPDATE SET updated_at = clock_timestamp()
