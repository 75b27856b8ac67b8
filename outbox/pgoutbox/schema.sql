-- The tables of an outbox, created in the first schema of the search path. This text may be run
-- again.

CREATE TABLE IF NOT EXISTS idem_outbox_schema (version integer PRIMARY KEY);

-- One row for each event to publish, written in the transaction that makes the event. The relay
-- deletes or marks a row after the acknowledgement of the broker.
CREATE TABLE IF NOT EXISTS idem_outbox (
    -- In the order of commits, within one topic and key.
    seq        bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    -- All rows of one topic and key have the same shard. Relays read shards 0 to 63 only.
    shard      smallint NOT NULL CHECK (shard BETWEEN 0 AND 63),
    -- 0: waits; 1: sent; 2: parked, the relay has given the row up; 3: blocked, behind a parked
    -- row.
    state      smallint NOT NULL DEFAULT 0,
    topic      text COLLATE "C" NOT NULL CHECK (octet_length(topic) <= 249),
    -- The key of the record. Null: a record without a key, which has no order.
    key        bytea CHECK (octet_length(key) BETWEEN 1 AND 1024),
    event_id   text COLLATE "C" NOT NULL,   -- set in the transaction, never by a relay (O-14)
    event_type text COLLATE "C" NOT NULL,
    payload    bytea,                       -- null: a tombstone
    -- [{"k": name, "v": text}], or "b" with base64, or neither for a null value. Null: no headers.
    headers    jsonb,
    added_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at   timestamptz,                 -- when the row was sent or parked
    error      text                         -- the reason of a parked row
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_threshold = -1);

-- NULLS FIRST, although seq is never null: only this index then has the order of the queries of
-- relays. With the index of the primary key, the server would sometimes read all waiting rows to
-- find the first one of a shard.
CREATE INDEX IF NOT EXISTS idem_outbox_waiting
    ON idem_outbox (shard, seq NULLS FIRST) WHERE state = 0;
CREATE INDEX IF NOT EXISTS idem_outbox_parked
    ON idem_outbox (state, shard, topic, key, seq) WHERE state IN (2, 3);
CREATE INDEX IF NOT EXISTS idem_outbox_sent ON idem_outbox (ended_at) WHERE state = 1;

-- The relay that holds each shard. The epoch grows each time another relay takes the shard.
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
