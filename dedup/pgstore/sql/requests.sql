SELECT {tenant} AS tenant, {scope} AS scope, {event_type} AS event_type, r.event_id, substr({fingerprint}, 1, 16) AS fingerprint, substr({fingerprint}, 17) AS second,
       {generation} AS to_generation, {retry} AS to_retry, {retention} AS retention, ({too_old}) AS old, r.n
       FROM unnest($4::text[], $10::timestamptz[]{arrays}) WITH ORDINALITY AS r(event_id, at{columns}, n)
