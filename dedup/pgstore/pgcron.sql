-- Deletes expired rows, for use with pg_cron instead of pgstore.Reaper. Both do the same work. Of
-- those without scopes in wall_clock one works at a time, and of the calls with the same scopes. This
-- procedure is for the readable layout; the compact one needs a pgstore.Reaper.
--
-- Run this text in the schema of the store's tables, as their owner. Then run in the database of
-- pg_cron, with your schema in place of app:
--
--     SELECT cron.schedule('idem', '* * * * *', $$CALL app.idem_reap('app')$$);
--
-- The role that calls the procedure needs the rights of pgstore.Reaper, and no statement_timeout,
-- which would count for the whole run (ALTER ROLE ... SET statement_timeout = 0). Do not call it
-- inside a transaction: it commits after every batch.
--
-- A run moves horizons (idem_horizons). A later run deletes the rows behind them, when no earlier
-- claim can still be running. grace is the time between the two: longer than the statement of a
-- claim may take, which is 5 s.
CREATE OR REPLACE PROCEDURE idem_reap(
    store       text     DEFAULT current_schema(), -- the schema of the tables
    wall_clock   text[]   DEFAULT '{}',             -- scopes whose rows expire by the wall clock
    grace        interval DEFAULT '1 minute',
    dead_letters interval DEFAULT '30 days',        -- retention of events that were ever given up
    batch        integer  DEFAULT 1000              -- rows deleted by one transaction
) LANGUAGE plpgsql AS $procedure$
DECLARE
    me       uuid := gen_random_uuid();
    mine     boolean;
    s        record;
    tbl      text;
    n        bigint;
    rest     bigint;      -- rows that a step of the horizon still reads
    place    timestamptz;
    first    timestamptz; -- of the window
    stop     timestamptz; -- the end of the window
    until    timestamptz;
    made     timestamptz;
    last     timestamptz;
    newest   timestamptz; -- when the newest expired row was made
    full_at  timestamptz; -- when the last row expired that was read, if there may be others
    cutoff   timestamptz;
    horizon  timestamptz;
    lease    text := 'reaper';
    window_rows bigint := 50000; -- that one statement reads of a table
    in_window text := 'SELECT count(*), max(expires_at) FROM (SELECT e.expires_at FROM %I e
                       WHERE e.expires_at >= $1 AND e.expires_at < $2 ORDER BY e.expires_at LIMIT $3) w';
    settings text := format($$SELECT set_config('search_path', %L, true), set_config('lock_timeout', '5s', true),
                            set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
                            set_config('enable_sort', 'off', true), set_config('jit', 'off', true)$$, quote_ident(store));
BEGIN
    IF cardinality(wall_clock) > 0 THEN -- a reaper of other scopes does not delete their rows
        lease := 'reaper cron ' || (SELECT encode(sha256(convert_to(
            string_agg(DISTINCT quote_literal(w), ',' ORDER BY quote_literal(w)), 'UTF8')), 'hex') FROM unnest(wall_clock) w);
    END IF;
    EXECUTE settings;
    INSERT INTO idem_leases AS l (name, token, lease_until)
    VALUES (lease, me, clock_timestamp() + interval '3 minutes')
    ON CONFLICT (name) DO UPDATE SET token = excluded.token, lease_until = excluded.lease_until
    WHERE l.lease_until < clock_timestamp()
    RETURNING true INTO mine;
    COMMIT;
    IF mine IS NOT TRUE THEN
        RAISE NOTICE 'another reaper is at work, no rows were deleted';
        RETURN;
    END IF;

    EXECUTE settings;
    FOR s IN
        WITH behind AS (
            SELECT DISTINCT ON (p.scope) p.scope, p.consumed_until
            FROM idem_progress p
            ORDER BY p.scope, p.consumed_until NULLS FIRST
        ), scopes AS (
            SELECT DISTINCT w.scope COLLATE "C" AS scope, clock_timestamp() AS consumed_until
            FROM unnest(wall_clock) AS w(scope)
            UNION ALL
            SELECT b.scope, b.consumed_until FROM behind b WHERE b.scope <> ALL (wall_clock)
        )
        SELECT c.scope, c.consumed_until, h.before, h.cutoff,
               coalesce(h.updated_at < clock_timestamp() - grace, true) AS ripe
        FROM scopes c LEFT JOIN idem_horizons h ON h.scope = c.scope
        WHERE c.consumed_until IS NOT NULL -- a partition of unknown time keeps all rows
        ORDER BY c.scope
    LOOP
        CONTINUE WHEN NOT s.ripe;
        IF s.cutoff IS NOT NULL THEN
            FOREACH tbl IN ARRAY ARRAY['processed_events', 'idempotency_keys'] LOOP
                until := least(s.cutoff, s.consumed_until);
                first := '-infinity';
                WHILE first < until LOOP
                    EXECUTE settings;
                    EXECUTE format(in_window, tbl) INTO n, last USING first, until, window_rows;
                    COMMIT;
                    EXIT WHEN n = 0;
                    stop := CASE WHEN n < window_rows THEN until
                                 ELSE least(until, last + interval '1 microsecond') END;
                    place := first;
                    LOOP
                        EXECUTE settings;
                        UPDATE idem_leases SET lease_until = clock_timestamp() + interval '3 minutes'
                        WHERE name = lease AND token = me;
                        IF NOT FOUND THEN
                            RETURN; -- this run stood still, and another reaper took over
                        END IF;
                        EXECUTE format($$
                            WITH gone AS (
                                DELETE FROM %I k
                                WHERE k.ctid = ANY (ARRAY(
                                    SELECT e.ctid FROM %I e
                                    WHERE e.scope = $1 AND e.expires_at >= $2 AND e.expires_at < $3 AND e.created_at <= $4
                                      AND (e.origin_time IS NULL OR e.origin_time < $4)
                                      AND NOT ((e.status = 'dead' OR e.generation > 0)
                                               AND coalesce(e.updated_at, e.created_at) > clock_timestamp() - $5)
                                    ORDER BY e.expires_at
                                    LIMIT $6
                                    FOR UPDATE SKIP LOCKED))
                                RETURNING k.expires_at
                            )
                            SELECT count(*), max(expires_at) FROM gone$$, tbl, tbl)
                        INTO n, place
                        USING s.scope, place, stop, s.before, dead_letters, batch;
                        COMMIT;
                        EXIT WHEN n < batch;
                        PERFORM pg_sleep(0.02);
                    END LOOP;
                    first := stop;
                END LOOP;
            END LOOP;
        END IF;

        -- A row stays while the time of its record is ahead of the horizon. If so many rows stay that
        -- reading ends with them, the horizon is read from the last cut-off on, too.
        horizon := NULL;
        cutoff := s.consumed_until;
        FOREACH tbl IN ARRAY ARRAY['processed_events', 'idempotency_keys'] LOOP
            newest := NULL;
            FOREACH place IN ARRAY ARRAY['-infinity', least(s.cutoff, s.consumed_until)] LOOP
                EXIT WHEN place > '-infinity' AND (s.cutoff IS NULL OR full_at IS NULL);
                full_at := NULL;
                rest := 5000000;
                first := place;
                WHILE first < s.consumed_until AND rest > 0 LOOP
                    EXECUTE settings;
                    UPDATE idem_leases SET lease_until = clock_timestamp() + interval '3 minutes'
                    WHERE name = lease AND token = me;
                    IF NOT FOUND THEN
                        RETURN;
                    END IF;
                    EXECUTE format(in_window, tbl) INTO n, last USING first, s.consumed_until, window_rows;
                    EXIT WHEN n = 0;
                    stop := CASE WHEN n < window_rows THEN s.consumed_until
                                 ELSE least(s.consumed_until, last + interval '1 microsecond') END;
                    EXECUTE format($$
                        SELECT count(*), max(created_at), max(expires_at)
                        FROM (SELECT k.created_at, k.expires_at FROM %I k
                              WHERE k.scope = $1 AND k.expires_at >= $2 AND k.expires_at < $3
                                AND NOT ((k.status = 'dead' OR k.generation > 0)
                                         AND coalesce(k.updated_at, k.created_at) > clock_timestamp() - $4)
                              ORDER BY k.expires_at LIMIT $5) e$$, tbl)
                    INTO n, made, last USING s.scope, first, stop, dead_letters, rest;
                    COMMIT;
                    newest := greatest(newest, made);
                    rest := rest - n;
                    IF rest <= 0 THEN
                        full_at := greatest(last, place + interval '1 microsecond');
                    END IF;
                    first := stop;
                END LOOP;
                COMMIT;
            END LOOP;
            horizon := greatest(horizon, newest);
            IF newest IS NOT NULL THEN
                cutoff := least(cutoff, full_at);
            END IF;
        END LOOP;
        IF horizon IS NOT NULL THEN
            EXECUTE settings;
            INSERT INTO idem_horizons AS h (scope, before, cutoff) VALUES (s.scope, horizon, cutoff)
            ON CONFLICT ON CONSTRAINT idem_horizons_pkey DO UPDATE
            SET before = greatest(h.before, excluded.before), cutoff = excluded.cutoff, updated_at = clock_timestamp();
            COMMIT;
        END IF;
    END LOOP;

    LOOP
        EXECUTE settings;
        WITH gone AS (
            DELETE FROM event_starts k
            WHERE k.ctid = ANY (ARRAY(
                SELECT e.ctid FROM event_starts e
                WHERE e.updated_at < clock_timestamp() - interval '1 day'
                LIMIT batch
                FOR UPDATE SKIP LOCKED))
            RETURNING 1
        )
        SELECT count(*) INTO n FROM gone;
        COMMIT;
        EXIT WHEN n < batch;
        PERFORM pg_sleep(0.02);
    END LOOP;

    EXECUTE settings;
    DELETE FROM idem_leases WHERE name = lease AND token = me;
END
$procedure$;
