-- What the events change. paid counts effects instead of hiding the second one behind a condition.
CREATE TABLE orders (
    id     bigint  PRIMARY KEY,
    status text    NOT NULL DEFAULT 'pending',
    paid   integer NOT NULL DEFAULT 0
);

CREATE TABLE accounts (
    id       bigint PRIMARY KEY,
    balance  bigint NOT NULL DEFAULT 0,
    payments bigint NOT NULL DEFAULT 0
);

-- The table people write by hand.
CREATE TABLE naive_events (
    event_id   text        PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- The outbox people write by hand.
CREATE TABLE naive_outbox (
    id         bigserial   PRIMARY KEY,
    topic      text        NOT NULL,
    aggregate  text        NOT NULL,
    event_type text        NOT NULL,
    event_id   uuid        NOT NULL DEFAULT gen_random_uuid(),
    payload    bytea       NOT NULL,
    sent       boolean     NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX naive_outbox_unsent ON naive_outbox (id) WHERE sent = false;
