-- The bank: accounts, what was asked for, and the double-entry ledger. Amounts are integers in minor units: cents, for EUR.

CREATE TABLE IF NOT EXISTS accounts (
    id       bigint PRIMARY KEY CHECK (id > 0),
    currency text   CHECK (currency ~ '^[A-Z]{3}$'), -- ISO 4217; null: that of the first transfer
    opening  bigint NOT NULL CHECK (opening >= 0),            -- what it began with: balance = opening + its entries
    balance  bigint NOT NULL CHECK (balance >= 0)
);

-- One row for each request that was decided, booked or refused. The natural key of a transfer is who asks and the
-- Idempotency-Key; the reference is data, and may repeat. Rows are never deleted, so a key is never new again.
CREATE TABLE IF NOT EXISTS transfers (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer        text   NOT NULL,
    idempotency_key text   NOT NULL CHECK (idempotency_key <> ''),
    from_account    bigint NOT NULL, -- no foreign key: a transfer may be refused because there is no such account
    to_account      bigint NOT NULL,
    amount          bigint NOT NULL CHECK (amount > 0),
    currency        text   NOT NULL,
    reference       text   NOT NULL,
    refused         text,            -- why; null: it was booked
    decided_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT transfers_natural_key UNIQUE (customer, idempotency_key),
    CHECK (from_account <> to_account)
);

-- Two rows for each transfer that was booked, which add up to zero. Balances change in the same transaction.
CREATE TABLE IF NOT EXISTS entries (
    transfer_id bigint NOT NULL REFERENCES transfers,
    account_id  bigint NOT NULL REFERENCES accounts,
    amount      bigint NOT NULL CHECK (amount <> 0),
    PRIMARY KEY (transfer_id, account_id)
);
CREATE INDEX IF NOT EXISTS entries_account ON entries (account_id);

-- What all processes of one bank must agree on, in one row. The id is part of every key in Redis, so that a bank that was
-- made anew never replays the answers of the one before. The secret keys the hashes of requests.
CREATE TABLE IF NOT EXISTS bank (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    id       uuid  NOT NULL DEFAULT gen_random_uuid(),
    secret   bytea NOT NULL DEFAULT decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex')
);
INSERT INTO bank DEFAULT VALUES ON CONFLICT DO NOTHING;
