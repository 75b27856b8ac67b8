-- Whether a queue has ended.
SELECT NOT EXISTS (
    SELECT FROM {schema}.deferred_queues WHERE (scope, topic, queue) = ($1::text, $2::text, $3::bytea)
)
