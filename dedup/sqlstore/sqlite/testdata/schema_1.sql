-- The tables of the SQLite store of Idem. Times are microseconds since 1970, UTC. You may run this
-- text again. Columns are those of the Postgres store.
CREATE TABLE IF NOT EXISTS idem_schema (
    version integer NOT NULL PRIMARY KEY,
    layout  text    NOT NULL DEFAULT 'readable'
);
INSERT INTO idem_schema (version) VALUES (1) ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS processed_events (
    tenant text NOT NULL, scope text NOT NULL, event_type text NOT NULL, event_id text NOT NULL,
    status text NOT NULL CHECK (status IN ('done', 'dead', 'moved')),
    record_version integer NOT NULL, created_at integer NOT NULL, updated_at integer,
    expires_at integer NOT NULL, generation integer NOT NULL, retry integer NOT NULL,
    fence integer NOT NULL, origin_topic text, origin_partition integer, origin_offset integer,
    origin_time integer, fingerprint blob, reason text, schema_version integer, result blob,
    PRIMARY KEY (tenant, scope, event_type, event_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS processed_events_expires_at ON processed_events (expires_at);

CREATE TABLE IF NOT EXISTS idempotency_keys (
    tenant text NOT NULL, scope text NOT NULL, event_type text NOT NULL, event_id text NOT NULL,
    status text NOT NULL CHECK (status IN ('claimed', 'released', 'moved', 'done', 'dead')),
    record_version integer NOT NULL, created_at integer NOT NULL, updated_at integer,
    expires_at integer NOT NULL, generation integer NOT NULL, retry integer NOT NULL,
    fence integer NOT NULL, origin_topic text, origin_partition integer, origin_offset integer,
    origin_time integer, fingerprint blob, reason text, schema_version integer, result blob,
    uncertain integer NOT NULL, failures integer NOT NULL, takeovers integer NOT NULL,
    lease_until integer, token text,
    PRIMARY KEY (tenant, scope, event_type, event_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idempotency_keys_expires_at ON idempotency_keys (expires_at);

CREATE TABLE IF NOT EXISTS event_starts (
    tenant text NOT NULL, scope text NOT NULL, event_type text NOT NULL, event_id text NOT NULL,
    origin_topic text NOT NULL, origin_partition integer NOT NULL, origin_offset integer NOT NULL,
    starts integer NOT NULL, updated_at integer NOT NULL,
    PRIMARY KEY (tenant, scope, event_type, event_id, origin_topic, origin_partition, origin_offset)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS idem_progress (
    scope text NOT NULL, topic text NOT NULL, "partition" integer NOT NULL,
    next_offset integer NOT NULL,
    consumed_until integer, -- null: not known, and no row of the scope is deleted
    updated_at integer NOT NULL,
    PRIMARY KEY (scope, topic, "partition")
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS idem_horizons (
    scope  text NOT NULL PRIMARY KEY,
    before integer NOT NULL, -- older events without a row may have been handled or not
    cutoff integer,          -- rows that expired before this, and were made before the horizon, may go
    updated_at integer
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS idem_leases (
    name text NOT NULL PRIMARY KEY, token text NOT NULL, lease_until integer NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS idem_scopes (
    scope text NOT NULL PRIMARY KEY, updated_at integer NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS idem_scope_topics (
    topic text NOT NULL, scope text NOT NULL, consumer_group text NOT NULL,
    PRIMARY KEY (topic, scope, consumer_group)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS idem_descriptors (
    scope text NOT NULL, event_type text NOT NULL, descriptor text NOT NULL,
    updated_at integer NOT NULL,
    PRIMARY KEY (scope, event_type)
) WITHOUT ROWID;
