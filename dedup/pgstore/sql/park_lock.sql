-- Makes all who change a queue wait for each other until they commit.
SELECT FROM {schema}.parked_keys WHERE (scope, topic, queue) = ($1::text, $2::text, $3::bytea) FOR UPDATE
