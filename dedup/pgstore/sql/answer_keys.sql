CASE WHEN k.record_version <> 1 THEN 'unknown'
     ELSE CASE WHEN r.to_generation = 0 AND k.fingerprint <> r.fingerprint AND k.fingerprint <> r.second
                    AND octet_length(k.fingerprint) = octet_length(r.fingerprint) THEN 'conflict ' ELSE '' END
       || CASE WHEN k.status IN ('done', 'dead') THEN k.status
               WHEN k.status NOT IN ('claimed', 'released', 'moved') THEN 'unknown'
               WHEN k.status = 'claimed' AND k.token = ($11::uuid[])[r.n] THEN 'mine'
               WHEN k.generation <> r.to_generation OR k.retry > r.to_retry THEN 'moved'
               WHEN k.status = 'claimed' AND k.lease_until > clock_timestamp() THEN 'busy'
               ELSE 'grant' END END AS answer
