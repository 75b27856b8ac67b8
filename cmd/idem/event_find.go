package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/events"
)

// eventFlags name an event.
type eventFlags struct {
	typ, tenant, source, topic string
}

func (f *eventFlags) add(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(
		&f.typ, "type", "",
		"event type; without it all types are searched, if the store supports that",
	)
	s.StringVar(&f.tenant, "tenant", "", "tenant; none by default")
	s.StringVar(
		&f.source, "source", "",
		"CloudEvents source: the ID is then source and id joined, as handlers join them",
	)
	s.StringVar(
		&f.topic, "topic", "",
		"topic of the event, to search deferred events; default: the topic of its origin",
	)
}

// looksDeferred reports whether the flags can find a deferred event without a record.
func (f *eventFlags) looksDeferred() bool { return f.typ != "" && f.topic != "" }

// eventID returns the event ID that handlers see.
func (f *eventFlags) eventID(arg string) (string, error) {
	if f.source == "" {
		return arg, nil
	}
	id, err := events.CloudEventID(f.source, arg)
	if err != nil {
		return "", usage("--source and the ID make no identity: %w", err)
	}
	return id, nil
}

// find looks for the event in all stores. asked is the key that was looked up.
func (a *app) find(
	ctx context.Context, stores []*openedStore, f *eventFlags, arg string,
) (all []*events.Event, asked events.Query, err error) {
	scope, err := a.theScope()
	if err != nil {
		return nil, asked, err
	}
	id, err := f.eventID(arg)
	if err != nil {
		return nil, asked, err
	}
	asked = events.Query{Scope: scope, ID: id, Type: f.typ, Tenant: f.tenant, Topic: f.topic}
	if err := asked.Key().Validate(); err != nil {
		return nil, asked, usage("%w", err)
	}
	all, err = events.Find(ctx, shared(stores), asked)
	if errors.Is(err, events.ErrWhichType) {
		return nil, asked, usage("%w: give --type", err)
	}
	return all, asked, err
}

// theOne returns the event if there is one.
func theOne(all []*events.Event, asked dedup.Key, lookedDeferred bool) (*events.Event, error) {
	switch len(all) {
	case 0:
		return nil, found("%s", notKnown(asked, lookedDeferred))
	case 1:
		return all[0], nil
	}
	var where []string
	for _, e := range all {
		where = append(
			where,
			fmt.Sprintf("  --type %q --tenant %q in %s", e.Key.Type, e.Key.Tenant, e.Store.Name),
		)
	}
	return nil, usage(
		"there are %d events with ID %q, choose one with --type, --tenant and one --store:\n%s",
		len(all), asked.ID, strings.Join(where, "\n"),
	)
}

// notKnown explains an event that was not found. lookedDeferred reports that deferred events
// without a record were searched too.
func notKnown(asked dedup.Key, lookedDeferred bool) string {
	text := events.NotKnown(asked, "type, tenant or --source")
	if !lookedDeferred {
		text += "; to find an event that was deferred behind another before its claim, give " +
			"--type and --topic"
	}
	return text
}

// target finds the one event that a verb is about. e is nil with an error.
func (a *app) target(
	ctx context.Context, f *eventFlags, arg string,
) (e *events.Event, asked dedup.Key, err error) {
	scope, err := a.theScope()
	if err != nil {
		return nil, asked, err
	}
	asked = dedup.Key{Tenant: f.tenant, Scope: scope, Type: f.typ, ID: arg}
	stores, err := a.openStores(ctx)
	if err != nil {
		return nil, asked, err
	}
	all, query, err := a.find(ctx, stores, f, arg)
	asked = query.Key()
	if err != nil {
		return nil, asked, err
	}
	e, err = theOne(all, asked, f.looksDeferred())
	return e, asked, err
}
