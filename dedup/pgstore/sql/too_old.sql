NOT {any_age} AND {generation} = 0 AND {retry} = 0
       AND r.at < (SELECT h.before FROM {schema}.idem_horizons h WHERE h.scope = {scope})
