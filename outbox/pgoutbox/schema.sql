-- The tables of an outbox. They name no schema: the search path says where they are made. May be run again.

CREATE TABLE IF NOT EXISTS idem_outbox_schema (version integer PRIMARY KEY);

-- One row for each event that is to leave. Rows are written in the transaction that makes the event, and are gone, or marked, when the
-- broker has acknowledged them.
CREATE TABLE IF NOT EXISTS idem_outbox (
    seq        bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY, -- in the order of commits, within one topic and key
    shard      smallint NOT NULL CHECK (shard BETWEEN 0 AND 63), -- all rows of one topic and key have one; relays know no others
    state      smallint NOT NULL DEFAULT 0, -- 0 waits, 1 sent, 2 parked: it will never be taken as it is, 3 blocked: behind a parked one
    topic      text COLLATE "C" NOT NULL CHECK (octet_length(topic) <= 249),
    key        bytea CHECK (octet_length(key) BETWEEN 1 AND 1024), -- of the record; null: none, and no order
    event_id   text COLLATE "C" NOT NULL,   -- made by the transaction, never by whoever sends (O-14)
    event_type text COLLATE "C" NOT NULL,
    payload    bytea,                       -- null: a tombstone
    headers    jsonb,                       -- [{"k": name, "v": text}, or "b": base64, or neither for null]; null: none
    added_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at   timestamptz,                 -- when it was sent or parked
    error      text                         -- why it was parked
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_threshold = -1);

-- NULLS FIRST, though seq is never null: only this index has the order that relays ask for. With that of the primary key the server would
-- at times read all that waits to find the first row of a shard.
CREATE INDEX IF NOT EXISTS idem_outbox_waiting ON idem_outbox (shard, seq NULLS FIRST) WHERE state = 0;
CREATE INDEX IF NOT EXISTS idem_outbox_parked ON idem_outbox (state, shard, topic, key, seq) WHERE state IN (2, 3);
CREATE INDEX IF NOT EXISTS idem_outbox_sent ON idem_outbox (ended_at) WHERE state = 1;

-- Who publishes what. The epoch grows with each change of hands.
CREATE TABLE IF NOT EXISTS idem_outbox_shards (
    shard       smallint PRIMARY KEY,
    relay       text COLLATE "C",
    epoch       bigint NOT NULL DEFAULT 0,
    lease_until timestamptz
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS idem_outbox_relays (
    relay       text COLLATE "C" PRIMARY KEY,
    alive_until timestamptz NOT NULL
) WITH (fillfactor = 50);

INSERT INTO idem_outbox_shards (shard) SELECT generate_series(0, 63) ON CONFLICT DO NOTHING;
INSERT INTO idem_outbox_schema VALUES (1) ON CONFLICT DO NOTHING;
