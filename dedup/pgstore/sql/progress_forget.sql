-- A scope ($1) that will not consume this topic ($2) again.
DELETE FROM {schema}.idem_progress WHERE scope = $1::text AND topic = $2::text
