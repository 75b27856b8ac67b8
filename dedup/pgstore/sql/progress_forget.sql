-- Removes a topic ($2) that a scope ($1) will not consume again.
DELETE FROM {schema}.idem_progress WHERE scope = $1::text AND topic = $2::text
