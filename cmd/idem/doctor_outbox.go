package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/outbox/pgoutbox"
)

// outboxPatience is how old a waiting row may be: a relay that works takes it within its interval.
const outboxPatience = time.Minute

// checkOutbox looks at the outbox in the database of a ledger, if there is one.
func (d *doctor) checkOutbox(ctx context.Context, r *findings, on, role string, pool *pgxpool.Pool) {
	unknown := func(id string, err error) {
		r.say(vUnknown, id, on, "not known: "+d.redact(err.Error()), "GRANT SELECT ON idem_outbox, idem_outbox_shards, idem_outbox_relays, "+
			"idem_outbox_schema TO "+ident(role))
	}
	layout, err := findOutbox(ctx, pool, d.schema)
	switch {
	case err != nil:
		unknown("outbox.tables", err)
		return
	case !layout.there():
		return // most ledgers have none
	}
	r.choose("outbox.tables", on, "as they must be", choice{layout.problem() != "", vBad, layout.problem(), "idem migrate up --outbox --ledger <url>"})
	if layout.problem() != "" {
		return
	}
	var opts []pgoutbox.Option
	if d.schema != "" {
		opts = append(opts, pgoutbox.InSchema(d.schema))
	}
	log, err := pgoutbox.New(pool, opts...).Backlog(ctx, backlogLimit)
	if err != nil {
		unknown("outbox.parked", err)
		return
	}
	r.choose("outbox.parked", on, "none",
		choice{log.Parked > 0, vWarn, fmt.Sprintf("%s rows are parked and will not be published, %s wait behind them", counted(log.Parked), counted(log.Blocked)),
			"idem outbox parked --outbox <url>, then retry or skip"})
	r.choose("outbox.oldest", on, fmt.Sprintf("%s rows wait, the oldest for %s", counted(log.Waiting), short(log.Oldest)),
		choice{log.Oldest > outboxPatience, vWarn, fmt.Sprintf("%s rows wait, the oldest for %s", counted(log.Waiting), short(log.Oldest)),
			"look at the log of the relays, and at idem outbox status --outbox <url>"})
	relays, err := shares(ctx, pool, d.schema)
	if err != nil {
		unknown("outbox.relay", err)
		return
	}
	alive, held := 0, 0
	for i := range relays {
		if s := &relays[i]; s.Relay != "" && s.Alive {
			alive++
			if s.LeaseLeft != nil && *s.LeaseLeft > 0 {
				held += len(s.Shards)
			}
		}
	}
	r.choose("outbox.relay", on, fmt.Sprintf("%d relays publish %d shards", alive, held),
		choice{alive == 0, vWarn, "no relay is alive: nothing leaves", "idem relay --outbox <url> --brokers <host:port>, or outbox.Relay in a service"})
}
