-- A ledger that runs several handlers in one transaction lets none of them wait for a lock for more than some milliseconds, since
-- handlers lock in any order. Here all lock in one order, and whoever has the lock is about to commit.
SELECT set_config('lock_timeout', '1s', true)
WHERE current_setting('lock_timeout')::interval > interval '0' AND current_setting('lock_timeout')::interval < interval '1s'
