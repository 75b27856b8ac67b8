-- The tables of the Postgres store of Idem. Version 2 added the queues of deferred events. Version
-- 3: the compact layout keeps a checksum of values.
--
-- You may run this text again: existing tables stay as they are. Run it as the owner of the tables,
-- in their schema (SET search_path). pgstore.Migrate does this under a lock. A migration tool of
-- your own may run this text instead.
--
-- A change takes two versions, so that a release and the one before it can share the schema during
-- a rolling upgrade. A version only adds: columns with a default, tables, indexes. The version
-- after the next removes.

-- The versions of this text that were run here, and the layout of the tables.
CREATE TABLE IF NOT EXISTS idem_schema (
    version    integer     NOT NULL PRIMARY KEY,
    layout     text        NOT NULL DEFAULT 'readable',
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE idem_schema ADD COLUMN IF NOT EXISTS layout text NOT NULL DEFAULT 'readable';

-- [The readable layout. schema_compact.sql replaces this part.]
INSERT INTO idem_schema (version, layout) VALUES (3, 'readable') ON CONFLICT DO NOTHING;

-- Events handled in the transaction of their effects: a row exists if and only if the effects do.
CREATE TABLE IF NOT EXISTS processed_events (
    tenant           text COLLATE "C" NOT NULL,
    scope            text COLLATE "C" NOT NULL, -- the namespace of the keys: the consumer group
    event_type       text COLLATE "C" NOT NULL,
    event_id         text COLLATE "C" NOT NULL,
    status           text COLLATE "C" NOT NULL DEFAULT 'done',
    record_version   smallint         NOT NULL DEFAULT 1, -- a reader of another version gives no answer
    created_at       timestamptz      NOT NULL DEFAULT clock_timestamp(),
    expires_at       timestamptz      NOT NULL,
    updated_at       timestamptz,                          -- null: never changed
    generation       bigint           NOT NULL DEFAULT 0,  -- how often it was reopened after it had been given up
    retry            bigint           NOT NULL DEFAULT 0,  -- the delayed retry that it is, or waits for
    fence            bigint           NOT NULL DEFAULT 1,  -- number of granted claims
    origin_partition integer,                              -- the delivery that made the row
    origin_offset    bigint,
    origin_time      timestamptz,
    origin_topic     text COLLATE "C",
    fingerprint      bytea,
    reason           text,                                 -- the reason of a dead event
    schema_version   bigint,                               -- of result
    result           bytea,                                -- replayed to duplicates
    CONSTRAINT processed_events_pkey PRIMARY KEY (tenant, scope, event_type, event_id),
    CONSTRAINT processed_events_status CHECK (status IN ('done', 'dead', 'moved'))
) WITH (autovacuum_vacuum_scale_factor = 0.02); -- instead of 0.2: a fifth of the rows would be dead

-- Claims on events whose effects are outside the database.
CREATE TABLE IF NOT EXISTS idempotency_keys (
    tenant           text COLLATE "C" NOT NULL,
    scope            text COLLATE "C" NOT NULL,
    event_type       text COLLATE "C" NOT NULL,
    event_id         text COLLATE "C" NOT NULL,
    status           text COLLATE "C" NOT NULL,
    record_version   smallint         NOT NULL DEFAULT 1,
    uncertain        boolean          NOT NULL DEFAULT false, -- an earlier holder may have caused the effect
    failures         integer          NOT NULL DEFAULT 0,
    created_at       timestamptz      NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz      NOT NULL DEFAULT clock_timestamp(),
    expires_at       timestamptz      NOT NULL,
    lease_until      timestamptz,                          -- null: not claimed
    generation       bigint           NOT NULL DEFAULT 0,
    retry            bigint           NOT NULL DEFAULT 0,
    fence            bigint           NOT NULL DEFAULT 1,
    takeovers        integer          NOT NULL DEFAULT 0,  -- claims that ended without a word of their holder
    token            uuid,                                 -- of the holder, or of the last one
    origin_partition integer,
    origin_offset    bigint,
    origin_time      timestamptz,
    origin_topic     text COLLATE "C",
    fingerprint      bytea,
    reason           text,
    schema_version   bigint,
    result           bytea,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant, scope, event_type, event_id),
    CONSTRAINT idempotency_keys_status CHECK (status IN ('claimed', 'released', 'moved', 'done', 'dead'))
) WITH (fillfactor = 50); -- room for the update that ends each claim, which then touches no index

-- For the reaper. These are B-trees, because BRIN never narrows a range again. After the first
-- deletions new rows fill old pages, and every range would seem to hold an expired row.
CREATE INDEX IF NOT EXISTS processed_events_expires_at ON processed_events (expires_at);
CREATE INDEX IF NOT EXISTS idempotency_keys_expires_at ON idempotency_keys (expires_at);

-- [Both layouts.]
--
-- Starts of transactional runs without an end: a process that such an event kills leaves no other
-- trace. Rows with starts = 0 are copies of an event with another content.
CREATE TABLE IF NOT EXISTS event_starts (
    tenant           text COLLATE "C" NOT NULL,
    scope            text COLLATE "C" NOT NULL,
    event_type       text COLLATE "C" NOT NULL,
    event_id         text COLLATE "C" NOT NULL,
    origin_topic     text COLLATE "C" NOT NULL, -- per record: copies of an event may begin at once
    origin_partition integer          NOT NULL,
    origin_offset    bigint           NOT NULL,
    starts           integer          NOT NULL DEFAULT 1,
    updated_at       timestamptz      NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT event_starts_pkey PRIMARY KEY (tenant, scope, event_type, event_id, origin_topic, origin_partition, origin_offset)
);

-- The consumed time of each scope. Rows are deleted in consumed time, not in that of a wall clock.
CREATE TABLE IF NOT EXISTS idem_progress (
    scope          text COLLATE "C" NOT NULL,
    topic          text COLLATE "C" NOT NULL,
    partition      integer          NOT NULL,
    next_offset    bigint           NOT NULL,
    consumed_until timestamptz,                            -- null: not known, and no row of the scope is deleted
    updated_at     timestamptz      NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT idem_progress_pkey PRIMARY KEY (scope, topic, partition)
) WITH (fillfactor = 50);

-- The horizon of each scope. It is written some time before the rows are deleted, so that every
-- claim sees it in time.
CREATE TABLE IF NOT EXISTS idem_horizons (
    scope      text COLLATE "C" NOT NULL CONSTRAINT idem_horizons_pkey PRIMARY KEY,
    before     timestamptz      NOT NULL, -- older events without a row may have been handled or not
    cutoff     timestamptz,               -- rows that expired before this, and were made before the horizon, may be deleted
    updated_at timestamptz      NOT NULL DEFAULT clock_timestamp()
);

-- The scopes, the groups that consume their topics, and the descriptors of their identities.
CREATE TABLE IF NOT EXISTS idem_scopes (
    scope      text COLLATE "C" NOT NULL CONSTRAINT idem_scopes_pkey PRIMARY KEY, -- the row that registrations lock
    created_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz      NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE IF NOT EXISTS idem_scope_topics (
    topic          text COLLATE "C" NOT NULL,
    scope          text COLLATE "C" NOT NULL,
    consumer_group text COLLATE "C" NOT NULL,
    created_at     timestamptz      NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT idem_scope_topics_pkey PRIMARY KEY (topic, scope, consumer_group)
);
CREATE TABLE IF NOT EXISTS idem_descriptors (
    scope      text COLLATE "C" NOT NULL,
    event_type text COLLATE "C" NOT NULL,
    descriptor text COLLATE "C" NOT NULL,
    updated_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT idem_descriptors_pkey PRIMARY KEY (scope, event_type)
);

-- Events that wait for a later attempt, or behind one that does, in the order of their Kafka keys.
-- To add an event to a queue, or to remove one, a transaction first locks the queue's row in
-- deferred_queues. The row exists if and only if the queue has an event.
CREATE TABLE IF NOT EXISTS deferred_queues (
    scope      text COLLATE "C" NOT NULL,
    topic      text COLLATE "C" NOT NULL,
    queue      bytea            NOT NULL, -- the Kafka key; if longer than 512 bytes: these, and the hash of all
    name       bytea,                     -- the Kafka key, if queue has its hash
    partition  integer          NOT NULL, -- of the last event that was added
    next_seq   bigint           NOT NULL,
    head_seq   bigint,                    -- of the first event; null only inside a transaction
    due        timestamptz      NOT NULL DEFAULT clock_timestamp(), -- when the first event may run
    blocked    boolean          NOT NULL DEFAULT false,             -- the first event was given up: a person decides how to go on
    created_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT deferred_queues_pkey PRIMARY KEY (scope, topic, queue)
);
CREATE INDEX IF NOT EXISTS deferred_queues_due ON deferred_queues (scope, topic, partition, due) WHERE NOT blocked;
CREATE INDEX IF NOT EXISTS deferred_queues_partition ON deferred_queues (scope, topic, partition, queue);
CREATE TABLE IF NOT EXISTS deferred_events (
    scope            text COLLATE "C" NOT NULL,
    topic            text COLLATE "C" NOT NULL,
    queue            bytea            NOT NULL,
    seq              bigint           NOT NULL, -- the order of the queue
    tenant           text COLLATE "C" NOT NULL,
    event_type       text COLLATE "C" NOT NULL,
    event_id         text COLLATE "C" NOT NULL,
    generation       bigint           NOT NULL, -- the attempt that runs next
    retry            bigint           NOT NULL,
    due              timestamptz      NOT NULL, -- when it may run, if it is the first
    blocked          boolean          NOT NULL DEFAULT false,
    origin_partition integer,                   -- its first delivery
    origin_offset    bigint,
    origin_time      timestamptz,
    origin_topic     text COLLATE "C",
    created_at       timestamptz      NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz,               -- null: never postponed
    data             bytea            NOT NULL, -- the message and its history
    CONSTRAINT deferred_events_pkey PRIMARY KEY (scope, topic, queue, seq),
    CONSTRAINT deferred_events_identity UNIQUE (scope, topic, tenant, event_type, event_id)
);

-- Leases of jobs that one process does at a time. Rows work with poolers, which share sessions;
-- locks of sessions do not.
CREATE TABLE IF NOT EXISTS idem_leases (
    name        text COLLATE "C" NOT NULL CONSTRAINT idem_leases_pkey PRIMARY KEY,
    token       uuid             NOT NULL,
    lease_until timestamptz      NOT NULL
);
