// Package doctor finds settings of workers, Kafka and stores that lose, double or stop events, and
// names the remedies. No data is changed: the test of unique keys rolls its transaction back.
// docs/doctor.md explains each check.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// serviceLimit bounds the checks of one store.
const serviceLimit = 30 * time.Second

// Examine runs all checks. A check that fails to run is a finding. The error means that ctx has
// ended. A request to Kafka cannot be interrupted: after the end of ctx, Examine waits for the
// timeouts of the client.
//
// Examine sends a few dozen requests, and some are expensive. Call it at a start, in a deployment,
// or from a page, but not continuously.
func Examine(ctx context.Context, in Input) (Findings, error) {
	d := newExamination(in)
	var all, stores Findings
	d.checkSettings(&all)
	if d.in.Offline {
		return all, nil
	}
	for i := range d.in.Stores { // before Kafka: a store has the topics
		d.examineStore(ctx, &stores, &d.in.Stores[i])
		if interrupted(ctx) {
			return nil, context.Cause(ctx)
		}
	}
	if err := d.checkKafka(ctx, &all); err != nil {
		return nil, err
	}
	all = append(all, stores...)
	scope := cmp.Or(d.in.Scope, d.in.Group)
	d.scopes.check(&all, scope, d.sources, d.noOffsets)
	return all, nil
}

// interrupted reports whether ctx has ended for another reason than its deadline. After a deadline
// the findings stay.
func interrupted(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded)
}

// examineStore checks one store, in at most serviceLimit.
func (d *examination) examineStore(ctx context.Context, r *Findings, l *Store) {
	ctx, cancel := context.WithTimeout(ctx, serviceLimit)
	defer cancel()
	switch l.kind() {
	case Postgres:
		d.checkPostgres(ctx, r, l)
	case Redis:
		d.checkRedis(ctx, r, l)
	case SQL:
		d.checkSQL(ctx, r, l)
	default: // checkSettings has reported the store
	}
}
