-- The table of the example. The store's own table, processed_events, comes from pgstore.Migrate.

CREATE TABLE IF NOT EXISTS payments (
    id              text PRIMARY KEY,
    account         text NOT NULL,        -- who asked
    idempotency_key text NOT NULL,        -- and with which key
    order_id        text NOT NULL,
    customer_id     text NOT NULL,        -- who pays
    amount          bigint NOT NULL CHECK (amount > 0), -- in the currency's smallest unit
    currency        text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    charge_id       text UNIQUE,          -- of the provider; null only inside the transaction that makes the payment
    created_at      timestamptz NOT NULL DEFAULT now(),
    UNIQUE (account, idempotency_key),    -- a request is one payment, also when the store has forgotten it
    UNIQUE (account, order_id)            -- an order is paid once, with whatever key
);
