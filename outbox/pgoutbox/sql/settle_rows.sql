-- Locks all rows of a settlement in their order.
SELECT o.seq FROM {outbox} o WHERE o.seq = ANY ($1::bigint[]) ORDER BY o.seq FOR UPDATE
