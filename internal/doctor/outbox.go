package doctor

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/outboxview"
	"github.com/idem-go/idem/internal/pgschema"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// outboxPatience is how old a waiting row may be: a relay that works takes it within its interval.
const outboxPatience = time.Minute

// checkOutbox looks at the outbox in the database of a store, if there is one.
func (d *examination) checkOutbox(ctx context.Context, r *Findings, on, role string, pool *pgxpool.Pool) {
	unknown := func(id string, err error) {
		r.say(Unknown, id, on, "not known: "+d.text(err), "GRANT SELECT ON idem_outbox, idem_outbox_shards, idem_outbox_relays, "+
			"idem_outbox_schema TO "+ident(role))
	}
	layout, err := outboxview.Find(ctx, pool, d.in.Schema)
	switch {
	case err != nil:
		unknown("outbox.tables", err)
		return
	case !layout.There():
		return // most stores have none
	}
	problem := layout.Problem()
	var opts []pgoutbox.Option
	if d.in.Schema != "" {
		opts = append(opts, pgoutbox.InSchema(d.in.Schema))
	}
	box := pgoutbox.New(pool, opts...)
	if problem == "" {
		// Its warnings are about rights, which are those of two roles as a rule, and about commits, which postgres.commit looks at.
		_, err := box.Check(ctx)
		switch {
		case pgschema.Code(err) == pgschema.NoRight:
			unknown("outbox.tables", err)
			return
		case err != nil:
			problem = d.text(err)
		}
	}
	r.choose("outbox.tables", on, "as they must be", choice{problem != "", Bad, problem, "IDEM_OUTBOX=<url> idem migrate up --outbox"})
	if problem != "" {
		return
	}
	log, err := box.Backlog(ctx, outboxview.Limit)
	if err != nil {
		unknown("outbox.parked", err)
		return
	}
	r.choose("outbox.parked", on, "none",
		choice{log.Parked > 0, Warn, fmt.Sprintf("%s rows are parked and will not be published, %s wait behind them", outboxview.Counted(log.Parked), outboxview.Counted(log.Blocked)),
			"idem outbox parked --outbox <url>, then retry or skip"})
	r.choose("outbox.oldest", on, fmt.Sprintf("%s rows wait, the oldest for %s", outboxview.Counted(log.Waiting), short(log.Oldest)),
		choice{log.Oldest > outboxPatience, Warn, fmt.Sprintf("%s rows wait, the oldest for %s", outboxview.Counted(log.Waiting), short(log.Oldest)),
			"look at the log of the relays, and at idem outbox status --outbox <url>"})
	d.checkRelays(ctx, r, on, pool, unknown)
}

func (d *examination) checkRelays(ctx context.Context, r *Findings, on string, pool *pgxpool.Pool, unknown func(string, error)) {
	relays, err := outboxview.Shares(ctx, pool, d.in.Schema)
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
		choice{alive == 0, Warn, "no relay is alive: nothing leaves", "idem relay --outbox <url> --brokers <host:port>, or outbox.Relay in a service"})
}

// short is a duration as people say it.
func short(d time.Duration) string {
	switch abs := d.Abs(); {
	case abs < time.Second:
		return d.Round(time.Millisecond).String()
	case abs < 48*time.Hour:
		return d.Round(time.Second).String()
	}
	return strconv.Itoa(int(d.Hours()/24)) + " days"
}
