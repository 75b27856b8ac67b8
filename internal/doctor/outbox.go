package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/outboxview"
	"github.com/idem-go/idem/internal/pgschema"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// oldestRow is how old a waiting row may be. A running relay publishes a row within its interval.
const oldestRow = time.Minute

// checkOutbox checks the outbox in the database of a store, if there is one.
func (d *examination) checkOutbox(
	ctx context.Context, r *Findings, on, role string, pool *pgxpool.Pool,
) {
	unknown := func(id string, err error) {
		r.say(Unknown, id, on, "not known: "+d.text(err), outboxRemedy(err, role, d.in.Schema))
	}
	layout, err := outboxview.Find(ctx, pool, d.in.Schema)
	switch {
	case err != nil:
		unknown("outbox.tables", err)
		return
	case !layout.There():
		return // most databases have no outbox
	}
	var opts []pgoutbox.Option
	if d.in.Schema != "" {
		opts = append(opts, pgoutbox.InSchema(d.in.Schema))
	}
	box := pgoutbox.New(pool, opts...)
	problem := layout.Problem()
	if problem == "" {
		// The warnings are about rights, which usually belong to two roles, and about commits,
		// which postgres.commit checks.
		_, err := box.Check(ctx)
		switch {
		case pgschema.Code(err) == pgschema.NoRight, err != nil && !outboxview.Unfit(err):
			unknown("outbox.tables", err)
			return
		case err != nil:
			problem = d.text(err)
		}
	}
	r.choose("outbox.tables", on, "all exist",
		choice{problem != "", Bad, problem, "IDEM_OUTBOX=<url> idem migrate up --outbox"})
	if problem != "" {
		return
	}
	log, err := box.Backlog(ctx, outboxview.Limit)
	if err != nil {
		unknown("outbox.parked", err)
		return
	}
	checkBacklog(r, on, log.Parked, log.Blocked, log.Waiting, log.Oldest)
	relays, err := outboxview.Shares(ctx, pool, d.in.Schema)
	if err != nil {
		unknown("outbox.relay", err)
		return
	}
	checkRelays(r, on, relays)
}

func checkBacklog(r *Findings, on string, parked, blocked, waiting int64, oldest time.Duration) {
	r.choose("outbox.parked", on, "none",
		choice{parked > 0, Warn,
			fmt.Sprintf("%s rows are parked and will not be published, %s wait behind them",
				outboxview.Counted(parked), outboxview.Counted(blocked)),
			"idem outbox parked --outbox <url>, then retry or skip"})
	state := fmt.Sprintf("%s rows wait, the oldest for %s",
		outboxview.Counted(waiting), short(oldest))
	r.choose("outbox.oldest", on, state,
		choice{oldest > oldestRow, Warn, state,
			"the log of the relays, and idem outbox status --outbox <url>"})
}

func checkRelays(r *Findings, on string, relays []outboxview.Share) {
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
		choice{alive == 0, Warn, "no relay is alive: no event is published",
			"idem relay --outbox <url> --brokers <host:port>, or outbox.Relay in a service"})
}
