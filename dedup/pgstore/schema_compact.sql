-- The compact layout: about 124 bytes for a finished event, heap, indexes and origin included
-- (readable: 319). The layout is fixed by the first run. Views show the rows as in the readable
-- layout.
--
-- How it saves space: at most eight columns, because the null bitmap of more costs 8 bytes in every
-- row. Values that most rows lack share one column. The origin is one number. Times are numbers,
-- and expires_at is rounded up to the minute, so that its index keeps one entry for many rows.
-- Kafka's times have milliseconds. The microseconds of origin_time are a checksum of the value,
-- from 1 to 999, or 0 for none. Of 999 copies with another content, one is not found.
INSERT INTO idem_schema (version, layout) VALUES (3, 'compact') ON CONFLICT DO NOTHING;

-- Numbers for values that many rows share. A row is committed alone before its number is used, and
-- never deleted.
CREATE TABLE IF NOT EXISTS idem_kinds (
    kind       integer          GENERATED ALWAYS AS IDENTITY CONSTRAINT idem_kinds_pkey PRIMARY KEY,
    tenant     text COLLATE "C" NOT NULL,
    scope      text COLLATE "C" NOT NULL,
    event_type text COLLATE "C" NOT NULL,
    form       smallint         NOT NULL, -- what the 16 bytes are: 1 SHA-256, cut; 2 a UUID; 3 a ULID
    CONSTRAINT idem_kinds_key UNIQUE (tenant, scope, event_type, form),
    CONSTRAINT idem_kinds_form CHECK (form BETWEEN 1 AND 3)
);
CREATE TABLE IF NOT EXISTS idem_origins (
    origin    integer          GENERATED ALWAYS AS IDENTITY CONSTRAINT idem_origins_pkey PRIMARY KEY,
    topic     text COLLATE "C" NOT NULL,
    partition integer          NOT NULL,
    CONSTRAINT idem_origins_key UNIQUE (topic, partition)
);

-- Events handled in the transaction of their effects: a row exists if and only if the effects do.
CREATE TABLE IF NOT EXISTS processed_events_compact (
    origin_time   timestamptz,      -- to the millisecond; below is a checksum of the value
    origin_offset bigint,
    expires       integer NOT NULL, -- minutes since 1970, rounded up
    made          integer NOT NULL, -- seconds since 2000, rounded up
    kind          integer NOT NULL,
    origin        integer,
    id            uuid    NOT NULL, -- 16 bytes: eight fewer in the row than bytea
    rest          jsonb,            -- differences to an event that is done at the first attempt
    CONSTRAINT processed_events_compact_pkey PRIMARY KEY (kind, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02); -- instead of 0.2: a fifth of the rows would be dead
CREATE INDEX IF NOT EXISTS processed_events_compact_expires_at
    ON processed_events_compact (to_timestamp(expires * 60::float8));

-- Claims on events whose effects are outside the database.
CREATE TABLE IF NOT EXISTS idempotency_keys_compact (
    origin_time    timestamptz,
    origin_offset  bigint,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at     timestamptz NOT NULL,
    lease_until    timestamptz,                          -- null: not claimed
    generation     bigint      NOT NULL DEFAULT 0,
    retry          bigint      NOT NULL DEFAULT 0,
    fence          bigint      NOT NULL DEFAULT 1,
    kind           integer     NOT NULL,
    origin         integer,
    failures       integer     NOT NULL DEFAULT 0,
    takeovers      integer     NOT NULL DEFAULT 0,       -- claims that ended without a word of their holder
    record_version smallint    NOT NULL DEFAULT 1,
    uncertain      boolean     NOT NULL DEFAULT false,   -- an earlier holder may have caused the effect
    id             uuid        NOT NULL,
    token          uuid,                                 -- of the holder, or of the last one
    status         text COLLATE "C" NOT NULL,
    fingerprint    bytea,
    reason         text,
    schema_version bigint,
    result         bytea,
    CONSTRAINT idempotency_keys_compact_pkey PRIMARY KEY (kind, id),
    CONSTRAINT idempotency_keys_compact_status CHECK (status IN ('claimed', 'released', 'moved', 'done', 'dead'))
) WITH (fillfactor = 50); -- room for the update that ends each claim
CREATE INDEX IF NOT EXISTS idempotency_keys_compact_expires_at ON idempotency_keys_compact (expires_at);

-- A ULID as text: 26 digits of 5 bits, after two bits of padding.
CREATE OR REPLACE FUNCTION idem_ulid(id uuid) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT string_agg(substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ',
        1 + substring(b'00' || ('x' || replace(id::text, '-', ''))::bit(128) FROM 5 * d + 1 FOR 5)::bit(5)::integer, 1),
        '' ORDER BY d)
    FROM generate_series(0, 25) AS d
$$;

-- Both tables with the columns of the readable layout. event_id is null if the row has a hash only.
-- To find an event by its ID, use column id, which the index covers: a UUID as it is, any other ID
-- hashed:
--
--     WHERE id = left(encode(sha256(convert_to('order-12345', 'UTF8')), 'hex'), 32)::uuid
CREATE OR REPLACE VIEW processed_events_read AS
SELECT e.xmin, i.tenant, i.scope, i.event_type,
       CASE i.form WHEN 2 THEN e.id::text WHEN 3 THEN idem_ulid(e.id) END AS event_id, e.kind, e.id,
       coalesce(e.rest ->> 'status', 'done') AS status,
       coalesce((e.rest ->> 'record_version')::smallint, 1::smallint) AS record_version,
       to_timestamp(946684800 + e.made::float8) AS created_at,
       to_timestamp(e.expires * 60::float8) AS expires_at,
       (e.rest ->> 'updated_at')::timestamptz AS updated_at,
       coalesce((e.rest ->> 'generation')::bigint, 0) AS generation,
       coalesce((e.rest ->> 'retry')::bigint, 0) AS retry,
       coalesce((e.rest ->> 'fence')::bigint, 1) AS fence,
       o.partition AS origin_partition, e.origin_offset, date_trunc('milliseconds', e.origin_time) AS origin_time, o.topic AS origin_topic,
       coalesce(decode(e.rest ->> 'fingerprint', 'hex'),
                int2send(nullif(date_part('microseconds', e.origin_time)::bigint % 1000, 0)::smallint)) AS fingerprint,
       e.rest ->> 'reason' AS reason,
       (e.rest ->> 'schema_version')::bigint AS schema_version,
       decode(e.rest ->> 'result', 'base64') AS result
FROM processed_events_compact e
LEFT JOIN idem_kinds i ON i.kind = e.kind
LEFT JOIN idem_origins o ON o.origin = e.origin;

CREATE OR REPLACE VIEW idempotency_keys_read AS
SELECT e.xmin, i.tenant, i.scope, i.event_type,
       CASE i.form WHEN 2 THEN e.id::text WHEN 3 THEN idem_ulid(e.id) END AS event_id, e.kind, e.id,
       e.status, e.record_version, e.uncertain, e.failures, e.created_at, e.updated_at, e.expires_at, e.lease_until,
       e.generation, e.retry, e.fence, e.takeovers, e.token,
       o.partition AS origin_partition, e.origin_offset, e.origin_time, o.topic AS origin_topic,
       e.fingerprint, e.reason, e.schema_version, e.result
FROM idempotency_keys_compact e
LEFT JOIN idem_kinds i ON i.kind = e.kind
LEFT JOIN idem_origins o ON o.origin = e.origin;
