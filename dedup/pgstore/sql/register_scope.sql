-- Locks the scope against other registrations until the commit.
INSERT INTO {schema}.idem_scopes AS s (scope) VALUES ($1::text)
ON CONFLICT (scope) DO UPDATE SET updated_at = clock_timestamp()
