package ops

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/deadletters"
	"github.com/idem-go/idem/internal/events"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// eventSource looks for events in stores, and for their dead letters.
type eventSource struct {
	stores      []deadletters.NamedStore
	scopes      []string
	deadLetters deadLetterBox // nil without Kafka
}

func (s *eventSource) find(ctx context.Context, q eventQuery) (a eventAnswer, err error) {
	id := q.ID
	if q.Source != "" {
		if id, err = events.CloudEventID(q.Source, q.ID); err != nil {
			a.NotKnown = "The source and the ID make no identity: " + err.Error()
			return a, nil //nolint:nilerr // it is the answer
		}
	}
	for _, scope := range s.scopes {
		query := events.Query{Scope: scope, ID: id, Type: q.Type, Tenant: q.Tenant, Topic: q.Topic}
		found, err := events.Find(ctx, s.stores, query)
		switch {
		case errors.Is(err, events.ErrWhichType):
			a.WhichType, a.NotKnown = true, "The store finds events by type and ID only: enter the type below."
			continue
		case errors.Is(err, dedup.ErrKey):
			a.NotKnown = "No event can have this ID: " + err.Error()
			return a, nil
		case err != nil:
			return a, err
		}
		for _, e := range found {
			a.Records = append(a.Records, recordsOf(e)...)
		}
		if len(found) == 0 && a.NotKnown == "" {
			a.NotKnown = capital(
				events.NotKnown(query.Key(), "type, tenant or CloudEvents source"),
			) + "."
		}
	}
	return a, nil
}

func recordsOf(e *events.Event) (all []eventRecord) {
	records := e.Records
	if len(records) == 0 && e.Deferred != nil {
		records = []dedup.Record{
			{Key: e.Key, First: e.Deferred.Event.Origin, Position: e.Deferred.Event.Position},
		}
	}
	for _, r := range records {
		one := eventRecord{
			Record: r, Store: e.Store.Name, Next: e.Next(r), NoRow: len(e.Records) == 0,
		}
		v := e.View(r)
		one.Content = v.ContentText()
		if v.Deferred != nil {
			p := v.Deferred
			one.Deferred = &deferredEvent{
				p.Topic, p.Partition, p.Queue, p.Head, p.HeadID, p.Blocked, p.Wait, p.Others,
			}
		}
		all = append(all, one)
	}
	return all
}

// maxEventDeadLetters is how many dead letters of one event are listed, of each dead-letter topic.
const maxEventDeadLetters = 50

func (s *eventSource) deadLettersOf(
	ctx context.Context, q eventQuery,
) (all eventDeadLetters, err error) {
	id := q.ID
	if q.Source != "" {
		if id, err = events.CloudEventID(q.Source, q.ID); err != nil {
			return all, nil //nolint:nilerr // no dead letter has it: the look-up says why
		}
	}
	topics, err := s.deadLetters.topics(ctx)
	if err != nil {
		return all, err
	}
	for _, topic := range topics {
		p, err := s.deadLetters.newest(
			ctx, deadLetterFilter{Topic: topic, ID: id, Type: q.Type}, maxEventDeadLetters,
		)
		all.Scanned += p.Scanned
		all.Cut = all.Cut || p.More
		for i := range p.Rows {
			if q.Tenant == "" || p.Rows[i].Tenant == q.Tenant {
				all.DeadLetters = append(all.DeadLetters, p.Rows[i])
			}
		}
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// claimSource lists claims with an ended lease.
type claimSource struct {
	stores []deadletters.NamedStore
	scopes []string
}

// maxStuck is how many claims are listed of a store.
const maxStuck = 100

func (s *claimSource) stuck(ctx context.Context) (all []storeClaims, err error) {
	for _, l := range s.stores {
		one := storeClaims{Store: l.Name}
		lister, ok := l.Store.(dedup.Lister)
		one.Cannot = !ok
		for _, scope := range s.scopes {
			if !ok {
				break
			}
			err := lister.List(
				ctx,
				dedup.Filter{Scope: scope, States: []dedup.State{dedup.Claimed}, Stuck: true},
				maxStuck+1,
				func(r dedup.Record) bool {
					if one.More = len(one.Records) >= maxStuck; !one.More {
						one.Records = append(one.Records, stuckRecord{r})
					}
					return !one.More
				},
			)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l.Name, err)
			}
		}
		all = append(all, one)
	}
	return all, nil
}

// outboxSource asks an outbox.
type outboxSource struct{ store outbox.Store }

// The limits of counts and lists.
const (
	maxCounted    = 100_000
	maxParkedRows = 100
)

func (s *outboxSource) read(ctx context.Context) (state outboxState, err error) {
	if state.Backlog, err = s.store.Backlog(ctx, maxCounted); err != nil {
		return state, err
	}
	lister, ok := s.store.(interface {
		Parked(context.Context, int) ([]pgoutbox.Parked, error)
	})
	if !ok {
		return state, nil
	}
	rows, err := lister.Parked(ctx, maxParkedRows)
	for i := range rows {
		r := &rows[i]
		state.Parked = append(state.Parked, outboxRow{
			Seq: r.Row.Seq, Topic: r.Row.Entry.Topic, Key: r.Row.Entry.Key,
			Type: r.Row.Entry.Type, ID: r.Row.Entry.ID, Reason: r.Error,
			At: r.At, Behind: r.Behind,
		})
	}
	return state, err
}
