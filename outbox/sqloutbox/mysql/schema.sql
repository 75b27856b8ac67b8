-- The tables of an outbox in MySQL and MariaDB. Times are UTC. You may run this text again, one
-- statement after the other; it waits for the transactions that add entries.
CREATE TABLE IF NOT EXISTS idem_outbox_schema (
    version integer NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

-- One row for each event to publish, written in the transaction that makes the event. The relay
-- deletes or marks a row after the acknowledgement of the broker.
CREATE TABLE IF NOT EXISTS idem_outbox (
    -- In the order of commits, within one topic and key.
    seq        bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    -- All rows of one topic and key have the same shard. Relays read shards 0 to 63 only.
    shard      smallint NOT NULL CHECK (shard BETWEEN 0 AND 63),
    -- 0: waits; 1: sent; 2: parked, the relay has given the row up; 3: blocked, behind a parked
    -- row.
    state      smallint NOT NULL DEFAULT 0,
    topic      varchar(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    -- The key of the record. Null: a record without a key, which has no order.
    `key`      varbinary(1024) CHECK (octet_length(`key`) > 0),
    -- Set in the transaction, never by a relay (O-14).
    event_id   varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
               CHECK (octet_length(event_id) > 0),
    event_type varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    payload    longblob,                    -- null: a tombstone
    -- [{"k": name, "v": text}], or "b" with base64, or neither for a null value. Null: no headers.
    headers    longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    added_at   datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
    ended_at   datetime(6),                 -- when the row was sent or parked
    error      text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, -- the reason of a parked row
    -- Never less than the size of the record.
    bytes      bigint AS (140 + octet_length(event_id) + octet_length(event_type)
                          + coalesce(octet_length(`key`), 0)
                          + coalesce(octet_length(payload), 0)
                          + coalesce(octet_length(headers), 0)) STORED,
    KEY idem_outbox_state (state, shard, seq, bytes),
    KEY idem_outbox_sent (state, ended_at)
) ENGINE = InnoDB;

-- A transaction that adds entries locks a row here for each topic and key, by a hash.
CREATE TABLE IF NOT EXISTS idem_outbox_locks (
    slot smallint NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

-- The relay that holds each shard. The epoch grows each time another relay takes the shard.
CREATE TABLE IF NOT EXISTS idem_outbox_shards (
    shard       smallint NOT NULL PRIMARY KEY,
    relay       varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    epoch       bigint NOT NULL DEFAULT 0,
    lease_until datetime(6)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS idem_outbox_relays (
    relay       varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    alive_until datetime(6) NOT NULL
) ENGINE = InnoDB;

INSERT INTO idem_outbox_locks (slot)
SELECT a.d + 16 * b.d + 256 * c.d
FROM (SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5
      UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9 UNION SELECT 10 UNION SELECT 11
      UNION SELECT 12 UNION SELECT 13 UNION SELECT 14 UNION SELECT 15) a,
     (SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5
      UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9 UNION SELECT 10 UNION SELECT 11
      UNION SELECT 12 UNION SELECT 13 UNION SELECT 14 UNION SELECT 15) b,
     (SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5
      UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9 UNION SELECT 10 UNION SELECT 11
      UNION SELECT 12 UNION SELECT 13 UNION SELECT 14 UNION SELECT 15) c
WHERE NOT EXISTS (SELECT 1 FROM idem_outbox_locks);

INSERT INTO idem_outbox_shards (shard)
SELECT slot FROM idem_outbox_locks
WHERE slot < 64 AND NOT EXISTS (SELECT 1 FROM idem_outbox_shards);

INSERT INTO idem_outbox_schema (version) VALUES (1) ON DUPLICATE KEY UPDATE version = 1;
