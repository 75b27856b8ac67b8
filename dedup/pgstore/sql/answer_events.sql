CASE WHEN k.record_version <> 1 THEN 'unknown'
     ELSE CASE WHEN r.to_generation = 0 AND k.fingerprint <> r.fingerprint AND k.fingerprint <> r.second
                    AND octet_length(k.fingerprint) = octet_length(r.fingerprint) THEN 'conflict ' ELSE '' END
       || CASE WHEN k.status IN ('done', 'dead') THEN k.status
               WHEN k.status <> 'moved' THEN 'unknown'
               WHEN k.generation <> r.to_generation OR k.retry > r.to_retry THEN 'moved'
               ELSE 'grant' END END AS answer
