-- Stores the recipes.
INSERT INTO {schema}.idem_recipes AS k (scope, event_type, recipe)
SELECT $1::text, r.event_type, r.recipe FROM unnest($2::text[], $3::text[]) AS r(event_type, recipe)
ORDER BY r.event_type COLLATE "C"
ON CONFLICT (scope, event_type) DO UPDATE
SET recipe = excluded.recipe, updated_at = clock_timestamp() WHERE k.recipe <> excluded.recipe
