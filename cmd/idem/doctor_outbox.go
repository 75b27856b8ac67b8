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
	problem := layout.problem()
	var opts []pgoutbox.Option
	if d.schema != "" {
		opts = append(opts, pgoutbox.InSchema(d.schema))
	}
	box := pgoutbox.New(pool, opts...)
	if problem == "" {
		// Its warnings are about rights, which are those of two roles as a rule, and about commits, which postgres.commit looks at.
		_, err := box.Check(ctx)
		switch {
		case pgCode(err) == codeNoRight:
			unknown("outbox.tables", err)
			return
		case err != nil:
			problem = d.redact(err.Error())
		}
	}
	r.choose("outbox.tables", on, "as they must be", choice{problem != "", vBad, problem, "idem migrate up --outbox --ledger <url>"})
	if problem != "" {
		return
	}
	log, err := box.Backlog(ctx, backlogLimit)
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
	d.checkRelays(ctx, r, on, pool, unknown)
}

func (d *doctor) checkRelays(ctx context.Context, r *findings, on string, pool *pgxpool.Pool, unknown func(string, error)) {
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
