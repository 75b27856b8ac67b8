-- The Postgres store of Idem. Version 2: version 1 and the queues of deferred events.
-- Version 3: the compact layout keeps a checksum of values.
--
-- Run it as often as you like: what exists stays as it is. Run it as the owner of the tables, in the schema that is to
-- hold them (SET search_path). pgstore.Migrate does all that under a lock; a migration tool of your own may run this
-- text instead.
--
-- Changes are made in two steps, so that a release and the one before it share one schema while instances are being
-- replaced: a version only adds (columns with a default, tables, indexes), and the version after the next removes.

-- Which versions of this text were run here, and which layout the tables have.
CREATE TABLE IF NOT EXISTS idem_schema (
    version    integer     NOT NULL PRIMARY KEY,
    layout     text        NOT NULL DEFAULT 'readable',
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE idem_schema ADD COLUMN IF NOT EXISTS layout text NOT NULL DEFAULT 'readable';

-- [The readable layout, in whose place schema_compact.sql has the compact one.]
INSERT INTO idem_schema (version, layout) VALUES (3, 'readable') ON CONFLICT DO NOTHING;

-- Events handled in the transaction of their effects: a row is there if and only if the effects are.
CREATE TABLE IF NOT EXISTS processed_events (
    tenant           text COLLATE "C" NOT NULL,
    scope            text COLLATE "C" NOT NULL, -- who remembers: the consumer group
    event_type       text COLLATE "C" NOT NULL,
    event_id         text COLLATE "C" NOT NULL,
    status           text COLLATE "C" NOT NULL DEFAULT 'done',
    record_version   smallint         NOT NULL DEFAULT 1, -- a reader that does not know it gives no answer
    created_at       timestamptz      NOT NULL DEFAULT clock_timestamp(),
    expires_at       timestamptz      NOT NULL,
    updated_at       timestamptz,                          -- null: never changed
    generation       bigint           NOT NULL DEFAULT 0,  -- how often it was reopened after it had been given up
    retry            bigint           NOT NULL DEFAULT 0,  -- which later attempt it is, or waits for
    fence            bigint           NOT NULL DEFAULT 1,  -- how many claims were granted
    origin_partition integer,                              -- the delivery that made the row
    origin_offset    bigint,
    origin_time      timestamptz,
    origin_topic     text COLLATE "C",
    fingerprint      bytea,
    reason           text,                                 -- why it is dead
    schema_version   bigint,                               -- of result
    result           bytea,                                -- replayed to duplicates
    CONSTRAINT processed_events_pkey PRIMARY KEY (tenant, scope, event_type, event_id),
    CONSTRAINT processed_events_status CHECK (status IN ('done', 'dead', 'moved'))
);

-- Claims on events whose effects are outside the database.
CREATE TABLE IF NOT EXISTS idempotency_keys (
    tenant           text COLLATE "C" NOT NULL,
    scope            text COLLATE "C" NOT NULL,
    event_type       text COLLATE "C" NOT NULL,
    event_id         text COLLATE "C" NOT NULL,
    status           text COLLATE "C" NOT NULL,
    record_version   smallint         NOT NULL DEFAULT 1,
    uncertain        boolean          NOT NULL DEFAULT false, -- an earlier holder may have had the effect
    failures         integer          NOT NULL DEFAULT 0,
    created_at       timestamptz      NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz      NOT NULL DEFAULT clock_timestamp(),
    expires_at       timestamptz      NOT NULL,
    lease_until      timestamptz,                          -- null: not claimed
    generation       bigint           NOT NULL DEFAULT 0,
    retry            bigint           NOT NULL DEFAULT 0,
    fence            bigint           NOT NULL DEFAULT 1,
    takeovers        integer          NOT NULL DEFAULT 0,  -- claims whose holder never spoke
    token            uuid,                                 -- of the holder, or of who spoke last
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
) WITH (fillfactor = 50); -- room for the update that ends each claim: beside its row it touches no index

-- For those who delete what has expired. A B-tree: BRIN never narrows a range again, so that after the first deletions,
-- when new rows fill old pages, every range seems to hold something expired.
CREATE INDEX IF NOT EXISTS processed_events_expires_at ON processed_events (expires_at);
CREATE INDEX IF NOT EXISTS idempotency_keys_expires_at ON idempotency_keys (expires_at);

-- [Both layouts.]
-- Starts of transactional runs without an end: what kills its process leaves no other trace. With starts = 0: records that
-- are copies of an event with another content.
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

-- How far each scope has consumed: what has expired is deleted in consumed time, not in the time of a wall clock.
CREATE TABLE IF NOT EXISTS idem_progress (
    scope          text COLLATE "C" NOT NULL,
    topic          text COLLATE "C" NOT NULL,
    partition      integer          NOT NULL,
    next_offset    bigint           NOT NULL,
    consumed_until timestamptz,                            -- null: not known, and nothing of the scope is deleted
    updated_at     timestamptz      NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT idem_progress_pkey PRIMARY KEY (scope, topic, partition)
) WITH (fillfactor = 50);

-- What each scope no longer remembers. Written some time before the rows go, so that every claim sees it in time.
CREATE TABLE IF NOT EXISTS idem_horizons (
    scope      text COLLATE "C" NOT NULL CONSTRAINT idem_horizons_pkey PRIMARY KEY,
    before     timestamptz      NOT NULL, -- records of events from before may be gone: nobody knows whether they were handled
    cutoff     timestamptz,               -- what expired before this, and was made before the horizon, may be deleted
    updated_at timestamptz      NOT NULL DEFAULT clock_timestamp()
);

-- Who consumes what, and by which recipe its events are told apart.
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
CREATE TABLE IF NOT EXISTS idem_recipes (
    scope      text COLLATE "C" NOT NULL,
    event_type text COLLATE "C" NOT NULL,
    recipe     text COLLATE "C" NOT NULL,
    updated_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT idem_recipes_pkey PRIMARY KEY (scope, event_type)
);

-- Events that wait for a later attempt, or behind one that does, in the order of their Kafka keys. Whoever puts one into
-- a queue, or takes one out, locks its row in deferred_queues first, which is there if and only if an event is in the queue.
CREATE TABLE IF NOT EXISTS deferred_queues (
    scope      text COLLATE "C" NOT NULL,
    topic      text COLLATE "C" NOT NULL,
    queue      bytea            NOT NULL, -- the Kafka key; of one of more than 512 bytes, those and the hash of all
    name       bytea,                     -- the Kafka key where queue is not
    partition  integer          NOT NULL, -- of the last event that was put into it
    next_seq   bigint           NOT NULL,
    head_seq   bigint,                    -- of the first event; null only while a transaction puts it there
    due        timestamptz      NOT NULL DEFAULT clock_timestamp(), -- when the first event may run
    blocked    boolean          NOT NULL DEFAULT false,             -- the first event was given up: a person says how to go on
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
    generation       bigint           NOT NULL, -- which attempt is to run
    retry            bigint           NOT NULL,
    due              timestamptz      NOT NULL, -- when it may run by itself, if it is the first
    blocked          boolean          NOT NULL DEFAULT false,
    origin_partition integer,                   -- its first delivery
    origin_offset    bigint,
    origin_time      timestamptz,
    origin_topic     text COLLATE "C",
    created_at       timestamptz      NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz,               -- null: never postponed
    data             bytea            NOT NULL, -- the message and its history
    CONSTRAINT deferred_events_pkey PRIMARY KEY (scope, topic, queue, seq),
    CONSTRAINT deferred_event UNIQUE (scope, topic, tenant, event_type, event_id)
);

-- Who may do a job that one is enough for. A row instead of a lock of the session: poolers share sessions.
CREATE TABLE IF NOT EXISTS idem_leases (
    name        text COLLATE "C" NOT NULL CONSTRAINT idem_leases_pkey PRIMARY KEY,
    token       uuid             NOT NULL,
    lease_until timestamptz      NOT NULL
);
