-- The tables of the example in MariaDB and MySQL. Those of the store come from mysql.Migrate.
-- Identifiers of payments are binary: case counts.
CREATE TABLE IF NOT EXISTS orders (
    id       bigint PRIMARY KEY,
    status   varchar(10) NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'paid')),
    paid_by  varbinary(255),
    amount   decimal(19, 4),
    currency varchar(10),
    paid_at  datetime(6),
    CHECK ((status = 'paid') = (paid_by IS NOT NULL))
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS order_effects (
    order_id   bigint NOT NULL,
    payment_id varbinary(255) NOT NULL,
    worker     varchar(255) NOT NULL,
    at         datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    KEY order_effects_worker (worker)
) ENGINE = InnoDB;
