-- Ends the lease.
DELETE FROM {schema}.idem_leases WHERE name = $2 AND token = $1::uuid
