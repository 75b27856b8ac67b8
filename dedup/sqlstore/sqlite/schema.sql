-- The tables of the SQLite store of Idem. Times are microseconds since 1970, UTC. You may run this
-- text again. Columns are those of the Postgres store. Version 2 added the queues of deferred
-- events.
CREATE TABLE IF NOT EXISTS idem_schema (
    version integer NOT NULL PRIMARY KEY,
    layout  text    NOT NULL DEFAULT 'readable'
);
INSERT INTO idem_schema (version) VALUES (2) ON CONFLICT DO NOTHING;

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

-- Events that wait for a later attempt, or behind one that does, in the order of their Kafka keys.
-- A row of deferred_queues exists if and only if the queue has an event. A Kafka key of more than
-- 512 bytes is in column name, and queue has its first 512 bytes and the hash of all.
CREATE TABLE IF NOT EXISTS deferred_queues (
    scope text NOT NULL, topic text NOT NULL, queue blob NOT NULL, name blob,
    "partition" integer NOT NULL, next_seq integer NOT NULL, head_seq integer NOT NULL,
    due integer NOT NULL, blocked integer NOT NULL, created_at integer NOT NULL,
    PRIMARY KEY (scope, topic, queue)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS deferred_queues_due
    ON deferred_queues (scope, topic, "partition", blocked, due);
CREATE INDEX IF NOT EXISTS deferred_queues_partition
    ON deferred_queues (scope, topic, "partition", queue);
CREATE TABLE IF NOT EXISTS deferred_events (
    scope text NOT NULL, topic text NOT NULL, queue blob NOT NULL, seq integer NOT NULL,
    tenant text NOT NULL, event_type text NOT NULL, event_id text NOT NULL,
    generation integer NOT NULL, retry integer NOT NULL, due integer NOT NULL,
    blocked integer NOT NULL, origin_topic text, origin_partition integer, origin_offset integer,
    origin_time integer, created_at integer NOT NULL, updated_at integer, data blob NOT NULL,
    PRIMARY KEY (scope, topic, queue, seq)
);
CREATE UNIQUE INDEX IF NOT EXISTS deferred_events_identity
    ON deferred_events (scope, topic, tenant, event_type, event_id);
