-- The recipes on record of these types.
SELECT event_type, recipe FROM {schema}.idem_recipes
WHERE scope = $1::text AND event_type = ANY ($2::text[])
ORDER BY event_type
