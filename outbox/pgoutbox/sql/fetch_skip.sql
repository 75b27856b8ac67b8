
            AND (o.key IS NULL OR (o.topic, o.key) NOT IN (
                SELECT k.topic COLLATE "C", k.key
                FROM unnest($6::text[], $7::bytea[]) AS k(topic, key)))
            AND o.seq <> ALL ($8::bigint[])
