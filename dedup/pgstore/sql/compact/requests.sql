SELECT {kind} AS kind, r.id, substr({fingerprint}, 1, 16) AS fingerprint, substr({fingerprint}, 17) AS second,
       {generation} AS to_generation, {retry} AS to_retry, {retention} AS retention, ({too_old}) AS old, r.n
       FROM unnest($3::integer[], $4::uuid[], $10::timestamptz[]{arrays}) WITH ORDINALITY AS r(origin, id, at{columns}, n)
