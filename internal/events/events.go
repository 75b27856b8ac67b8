// Package events finds the state of an event: its records in the stores, the place in a queue, its
// dead letters, and the next step. The package prints no output; the command and the ops page do.
//
// The functions are safe for concurrent use.
package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/deadletters"
)

// Query names an event.
type Query struct {
	// Scope and ID are required. ID is the one that handlers see, see [CloudEventID].
	Scope, ID string
	// Type and Tenant are those of the event. Without them all are searched, if the store can.
	Type, Tenant string
	// Topic is the topic of the event, to find it among deferred events. The default is the topic
	// of the record. With a type, deferred events without a record are found too.
	Topic string
}

// Key returns the key for the store.
func (q Query) Key() dedup.Key {
	return dedup.Key{Tenant: q.Tenant, Scope: q.Scope, Type: q.Type, ID: q.ID}
}

// CloudEventID is the ID that handlers make of the source and the id of a CloudEvent.
func CloudEventID(source, id string) (string, error) {
	return idem.StandardID().Extract(&idem.Message{Headers: []idem.Header{
		{Key: "ce_id", Value: []byte(id)}, {Key: "ce_source", Value: []byte(source)},
	}})
}

// Event is a key that a store knows.
type Event struct {
	Store *deadletters.NamedStore
	Key   dedup.Key
	// Records has the records of the store: at most one for claimed and one for transactional
	// handlers. Empty for a deferred event without a record.
	Records []dedup.Record
	// Conflicts has the noted copies with another content, at most [MaxConflicts]. Nil if the store
	// keeps no notes.
	Conflicts []dedup.Origin
	// Deferred is the place in a queue, nil without one.
	Deferred *Deferred

	topic string // to look for the event in a queue
}

// MaxConflicts is how many copies with another content are shown of an event.
const MaxConflicts = 20

// NotYetKnown returns an event without a record, to give the event up before its first delivery.
// topic is empty if it is not known.
func NotYetKnown(store *deadletters.NamedStore, key dedup.Key, topic string) *Event {
	return &Event{Store: store, Key: key, topic: topic}
}

// ErrWhichType is that an event cannot be found without its type in a store.
var ErrWhichType = errors.New("which event?")

// maxTypes bounds how many types are tried with a store that cannot search.
const maxTypes = 1000

// Find searches an event in all stores, which must be [dedup.Operator]s. It may find several
// events, of different types, tenants and stores, or no event, without an error. The error matches
// [dedup.ErrKey] for an invalid ID, and [ErrWhichType] if the query has no type and a store
// requires one.
func Find(
	ctx context.Context, ledgers []deadletters.NamedStore, q Query,
) (all []*Event, err error) {
	if err := q.Key().Validate(); err != nil {
		return nil, err
	}
	for i := range ledgers {
		found, err := findIn(ctx, &ledgers[i], q)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	for _, e := range all {
		e.topic = cmp.Or(q.Topic, e.Records[0].First.Topic)
		if e.Deferred, err = findDeferred(ctx, e.Store, e.Key, e.topic); err != nil {
			return nil, err
		}
		if noter, ok := e.Store.Store.(dedup.ConflictNoter); ok {
			if e.Conflicts, err = noter.Conflicts(ctx, e.Key, MaxConflicts); err != nil {
				return nil, fmt.Errorf("%s: %w", e.Store.Name, err)
			}
			if e.Conflicts == nil {
				e.Conflicts = []dedup.Origin{}
			}
		}
	}
	if len(all) == 0 && q.Type != "" {
		all, err = deferredOnly(ctx, ledgers, q)
	}
	return all, err
}

func findIn(ctx context.Context, l *deadletters.NamedStore, q Query) (all []*Event, err error) {
	records, err := look(ctx, l, q.Key(), q.Type == "")
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if q.Tenant != "" && r.Key.Tenant != q.Tenant {
			continue
		}
		if n := len(all); n > 0 && all[n-1].Key == r.Key {
			all[n-1].Records = append(all[n-1].Records, r)
			continue
		}
		all = append(all, &Event{Store: l, Key: r.Key, Records: []dedup.Record{r}})
	}
	return all, nil
}

// deferredOnly finds a deferred event without a record.
func deferredOnly(
	ctx context.Context, ledgers []deadletters.NamedStore, q Query,
) (all []*Event, err error) {
	for i := range ledgers {
		l := &ledgers[i]
		deferred, err := findDeferred(ctx, l, q.Key(), q.Topic)
		if err != nil {
			return nil, err
		}
		if deferred != nil {
			all = append(all, &Event{
				Store: l, Key: q.Key(), Deferred: deferred, topic: q.Topic,
			})
		}
	}
	return all, nil
}

// look returns the records of a key, of every type and tenant if anyType is set.
func look(
	ctx context.Context, l *deadletters.NamedStore, key dedup.Key, anyType bool,
) (records []dedup.Record, err error) {
	lister, canSearch := l.Store.(dedup.Lister)
	switch {
	case !anyType:
		records, err = l.Operator().Inspect(ctx, key)
	case canSearch:
		records, err = lister.Find(ctx, key.Scope, key.ID)
	default:
		var keys []dedup.Key
		if keys, err = keysOfTypes(ctx, l, key); err == nil {
			records, err = l.Operator().Inspect(ctx, keys...)
		}
	}
	if errors.Is(err, ErrWhichType) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.Name, err)
	}
	slices.SortStableFunc(records, func(a, b dedup.Record) int { return a.Key.Compare(b.Key) })
	return records, nil
}

// typeLister is a store that cannot search but knows the types that a scope has registered.
type typeLister interface {
	Types(ctx context.Context, scope string) ([]string, error)
}

// keysOfTypes makes a key for each type that the scope has registered.
func keysOfTypes(
	ctx context.Context, l *deadletters.NamedStore, key dedup.Key,
) (keys []dedup.Key, err error) {
	lister, ok := l.Store.(typeLister)
	if !ok {
		return nil, fmt.Errorf("%w %s cannot look through all types", ErrWhichType, l.Name)
	}
	types, err := lister.Types(ctx, key.Scope)
	if err != nil {
		return nil, fmt.Errorf("types of scope %q: %w", key.Scope, err)
	}
	if len(types) == 0 || len(types) > maxTypes {
		return nil, fmt.Errorf(
			"%w scope %q has %d types on record", ErrWhichType, key.Scope, len(types),
		)
	}
	for _, t := range types {
		key.Type = t
		keys = append(keys, key)
	}
	return keys, nil
}

// NotKnown explains the possible reasons why an event was not found. names are further parts of the
// query, such as "type or tenant".
func NotKnown(asked dedup.Key, names string) string {
	what := fmt.Sprintf("event %q is not known in scope %q", asked.ID, asked.Scope)
	if asked.Type != "" {
		what += fmt.Sprintf(" with type %q", asked.Type)
	}
	if asked.Tenant != "" {
		what += fmt.Sprintf(" and tenant %q", asked.Tenant)
	}
	return what + ": it was not claimed yet, or a transaction under way has it, or it was forgotten after its retention, or it has another " + names
}
