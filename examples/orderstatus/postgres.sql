-- The tables of the example. The store's own table, processed_events, comes from pgstore.Migrate.

CREATE TABLE IF NOT EXISTS orders (
    id       bigint PRIMARY KEY,
    status   text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'paid')),
    paid_by  text,        -- the payment that did it
    amount   numeric,     -- as the payment said
    currency text,
    paid_at  timestamptz,
    CHECK ((status = 'paid') = (paid_by IS NOT NULL))
);

-- Every run of the handler that was committed, with -audit. It has no unique constraint on purpose: it is there to show
-- effects that happened twice, not to prevent them.
CREATE TABLE IF NOT EXISTS order_effects (
    order_id   bigint NOT NULL,
    payment_id text NOT NULL,
    worker     text NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
