-- Deletes relays that are gone for an hour. SKIP LOCKED: two relays that waited for each other here
-- would deadlock.
WITH gone AS MATERIALIZED (
    SELECT relay FROM {relays} WHERE alive_until < clock_timestamp() - interval '1 hour'
    LIMIT 100 FOR UPDATE SKIP LOCKED)
DELETE FROM {relays} r USING gone g WHERE r.relay = g.relay
