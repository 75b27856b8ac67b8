-- The tables of the MySQL and MariaDB store of Idem. Times are UTC. Parts of keys are binary: case
-- and trailing spaces count. You may run this text again, one statement after the other.
CREATE TABLE IF NOT EXISTS idem_schema (
    version integer     NOT NULL PRIMARY KEY,
    layout  varchar(20) NOT NULL DEFAULT 'readable'
) ENGINE = InnoDB;
INSERT INTO idem_schema (version) VALUES (1) ON DUPLICATE KEY UPDATE version = 1;
CREATE TABLE IF NOT EXISTS processed_events (
    tenant varbinary(255) NOT NULL, scope varbinary(255) NOT NULL,
    event_type varbinary(255) NOT NULL, event_id varbinary(255) NOT NULL,
    status varbinary(10) NOT NULL, record_version smallint NOT NULL,
    created_at datetime(6) NOT NULL, updated_at datetime(6), expires_at datetime(6) NOT NULL,
    generation bigint NOT NULL, retry bigint NOT NULL, fence bigint NOT NULL,
    origin_topic blob, origin_partition integer, origin_offset bigint, origin_time datetime(6),
    fingerprint varbinary(16), reason blob, schema_version bigint, result longblob,
    PRIMARY KEY (tenant, scope, event_type, event_id),
    KEY processed_events_expires_at (expires_at)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS idempotency_keys (
    tenant varbinary(255) NOT NULL, scope varbinary(255) NOT NULL,
    event_type varbinary(255) NOT NULL, event_id varbinary(255) NOT NULL,
    status varbinary(10) NOT NULL, record_version smallint NOT NULL,
    created_at datetime(6) NOT NULL, updated_at datetime(6), expires_at datetime(6) NOT NULL,
    generation bigint NOT NULL, retry bigint NOT NULL, fence bigint NOT NULL,
    origin_topic blob, origin_partition integer, origin_offset bigint, origin_time datetime(6),
    fingerprint varbinary(16), reason blob, schema_version bigint, result longblob,
    uncertain boolean NOT NULL, failures integer NOT NULL, takeovers integer NOT NULL,
    lease_until datetime(6), token varbinary(32),
    PRIMARY KEY (tenant, scope, event_type, event_id),
    KEY idempotency_keys_expires_at (expires_at)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS event_starts (
    tenant varbinary(255) NOT NULL, scope varbinary(255) NOT NULL,
    event_type varbinary(255) NOT NULL, event_id varbinary(255) NOT NULL,
    origin_topic varbinary(255) NOT NULL, origin_partition integer NOT NULL,
    origin_offset bigint NOT NULL, starts integer NOT NULL, updated_at datetime(6) NOT NULL,
    PRIMARY KEY (tenant, scope, event_type, event_id, origin_topic, origin_partition, origin_offset)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS idem_progress (
    scope varbinary(255) NOT NULL, topic varbinary(255) NOT NULL, `partition` integer NOT NULL,
    next_offset bigint NOT NULL, consumed_until datetime(6), updated_at datetime(6) NOT NULL,
    PRIMARY KEY (scope, topic, `partition`)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS idem_horizons (
    scope varbinary(255) NOT NULL PRIMARY KEY, `before` datetime(6) NOT NULL,
    cutoff datetime(6), updated_at datetime(6)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS idem_leases (
    name varbinary(255) NOT NULL PRIMARY KEY, token varbinary(36) NOT NULL,
    lease_until datetime(6) NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS idem_scopes (
    scope varbinary(255) NOT NULL PRIMARY KEY, updated_at datetime(6) NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS idem_scope_topics (
    topic varbinary(255) NOT NULL, scope varbinary(255) NOT NULL,
    consumer_group varbinary(255) NOT NULL,
    PRIMARY KEY (topic, scope, consumer_group)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS idem_descriptors (
    scope varbinary(255) NOT NULL, event_type varbinary(255) NOT NULL, descriptor blob NOT NULL,
    updated_at datetime(6) NOT NULL,
    PRIMARY KEY (scope, event_type)
) ENGINE = InnoDB;
