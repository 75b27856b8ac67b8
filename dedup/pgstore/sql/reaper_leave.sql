-- Ends the lease.
DELETE FROM {schema}.idem_leases WHERE name = 'reaper' AND token = $1::uuid
