-- Forgets relays that are long gone. Nobody waits here for a row, else two that bury each other would deadlock.
WITH gone AS MATERIALIZED (
    SELECT relay FROM {relays} WHERE alive_until < clock_timestamp() - interval '1 hour' LIMIT 100 FOR UPDATE SKIP LOCKED)
DELETE FROM {relays} r USING gone g WHERE r.relay = g.relay
