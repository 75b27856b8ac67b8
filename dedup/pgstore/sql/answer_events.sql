CASE WHEN k.record_version <> 1 THEN 'unknown'
     WHEN r.to_generation = 0 AND k.fingerprint <> r.fingerprint THEN 'conflict'
     WHEN k.status IN ('done', 'dead') THEN k.status
     WHEN k.status <> 'moved' THEN 'unknown'
     WHEN k.generation <> r.to_generation OR k.retry > r.to_retry THEN 'moved'
     ELSE 'grant' END AS answer
