package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/events"
)

func newEventCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "event",
		Short: "What happened to an event, and what shall",
	}
	cmd.AddCommand(newEventGetCmd(a), newEventListCmd(a), newEventReleaseCmd(a), newEventSkipCmd(a))
	return cmd
}

// eventFlags name an event.
type eventFlags struct {
	typ, tenant, source, topic string
}

func (f *eventFlags) add(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(
		&f.typ, "type", "",
		"event type; without it all types are looked through where the store can",
	)
	s.StringVar(&f.tenant, "tenant", "", "tenant; none by default")
	s.StringVar(
		&f.source, "source", "",
		"CloudEvents source: the ID is then source and id together, as the handlers join them",
	)
	s.StringVar(
		&f.topic, "topic", "",
		"topic of the event, to find it among deferred ones; that of its origin by default",
	)
}

// looksDeferred reports whether the flags can find a deferred event without a record.
func (f *eventFlags) looksDeferred() bool { return f.typ != "" && f.topic != "" }

// one wants exactly one argument.
func one(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage("%s wants one argument, %s; it got %d", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}

// id is the event ID that handlers see.
func (f *eventFlags) id(arg string) (string, error) {
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
	ctx context.Context, ledgers []*openedStore, f *eventFlags, arg string,
) (all []*events.Event, asked events.Query, err error) {
	scope, err := a.theScope()
	if err != nil {
		return nil, asked, err
	}
	id, err := f.id(arg)
	if err != nil {
		return nil, asked, err
	}
	asked = events.Query{Scope: scope, ID: id, Type: f.typ, Tenant: f.tenant, Topic: f.topic}
	if err := asked.Key().Validate(); err != nil {
		return nil, asked, usage("%w", err)
	}
	all, err = events.Find(ctx, shared(ledgers), asked)
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
		"there are %d events with ID %q, say which with --type, --tenant and one --store:\n%s",
		len(all), asked.ID, strings.Join(where, "\n"),
	)
}

// notKnown explains an event that was not found. lookedDeferred reports that deferred events
// without a record were searched too.
func notKnown(asked dedup.Key, lookedDeferred bool) string {
	what := events.NotKnown(asked, "type, tenant or --source")
	if !lookedDeferred {
		what += "; one that was deferred behind another before it was claimed is found with --type and --topic"
	}
	return what
}

func newEventGetCmd(a *app) *cobra.Command {
	var f eventFlags
	var letters bool
	cmd := &cobra.Command{
		Use:   "get <id>",
		Short: "What the stores know of an event",
		Long: "What the stores know of an event: its state, when, by which way, how often it failed, where it came from, and what\n" +
			"becomes of it next. With --dead-letters its dead letters too; that reads the dead-letter topics from end to end.",
		Example: "  idem event get order-4711 --group billing --store $STORE\n" +
			"  idem event get A234-1234-1234 --source /shop/orders --group billing --dead-letters --brokers localhost:9092",
		Args: one("the event's ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eventGet(cmd.Context(), &f, args[0], letters)
		},
	}
	f.add(cmd)
	cmd.Flags().
		BoolVar(&letters, "dead-letters", false, "look for its dead letters (with --brokers and --group)")
	return cmd
}

func (a *app) eventGet(ctx context.Context, f *eventFlags, arg string, letters bool) error {
	if _, err := a.theScope(); err != nil {
		return err
	}
	if letters {
		if _, err := a.theGroup(); err != nil {
			return err
		}
	}
	ledgers, err := a.openStores(ctx)
	if err != nil {
		return err
	}
	all, asked, err := a.find(ctx, ledgers, f, arg)
	if err != nil {
		return err
	}
	report := eventReport{Events: []events.View{}}
	for _, e := range all {
		report.Events = append(report.Events, e.Views()...)
	}
	if letters {
		client, err := a.kafka()
		if err != nil {
			return err
		}
		if report.DeadLetters, err = events.DeadLetters(ctx, client, a.group, asked); err != nil {
			return err
		}
	}
	if err := a.show(report, nil, report.rows()); err != nil {
		return err
	}
	if len(all) == 0 {
		return found("%s", notKnown(asked.Key(), f.looksDeferred()))
	}
	return nil
}

func newEventReleaseCmd(a *app) *cobra.Command {
	var f eventFlags
	var reason string
	cmd := &cobra.Command{
		Use:   "release <id>",
		Short: "Forget an event, so that its next delivery runs",
		Long: "Forget all that the store knows of an event, so that its next delivery runs as if it were the first one. Nothing is\n" +
			"delivered by that. An event that a live worker holds is refused. If an effect happened already, it happens again.\n" +
			"A dead event is better published again with idem dlq replay.",
		Args: one("the event's ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eventRelease(cmd.Context(), &f, args[0], reason)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit line")
	return cmd
}

func (a *app) eventRelease(ctx context.Context, f *eventFlags, arg, reason string) error {
	e, asked, err := a.target(ctx, f, arg)
	err = a.audited("event release", auditOf(e, asked, reason), func() error {
		if err != nil {
			return err
		}
		if err := a.confirm("%s\nIt will be forgotten: its next delivery runs.%s", describe(e), warnRelease(e)); err != nil {
			return err
		}
		err := e.Store.Operator().Forget(ctx, e.Key)
		switch {
		case errors.Is(err, dedup.ErrHeld):
			return found(
				"event %q is being handled now, nothing was done: wait until its lease ends (idem event get says when)",
				e.Key.ID,
			)
		case errors.Is(err, dedup.ErrNotFound) && e.Deferred == nil:
			return found("%s", notKnown(e.Key, true))
		case err != nil && !errors.Is(err, dedup.ErrNotFound):
			return fmt.Errorf("%s: %w", e.Store.Name, err)
		}
		if e.Deferred != nil && e.Deferred.Event.Blocked {
			if err := e.Unblock(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return a.say(e, "released", howDelivered(e, a.group))
}

func newEventSkipCmd(a *app) *cobra.Command {
	var f eventFlags
	var reason string
	var retention time.Duration
	cmd := &cobra.Command{
		Use:   "skip <id>",
		Short: "Give an event up for good, so that others go on",
		Long: "Give an event up for good: no delivery of it runs any more, whoever handles it now loses it, and if it is deferred in a\n" +
			"store in Postgres, those of its key that wait behind it go on. An event that was handled is refused. One that the store\n" +
			"does not know is given up before it comes, if --type says of which type it is.",
		Args: one("the event's ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if retention <= 0 {
				return usage("--retention must be positive")
			}
			return a.eventSkip(cmd.Context(), &f, args[0], reason, retention)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the store and the audit line")
	cmd.Flags().
		DurationVar(&retention, "retention", 30*24*time.Hour, "how long it is remembered that the event was given up")
	return cmd
}

func (a *app) eventSkip(
	ctx context.Context, f *eventFlags, arg, reason string, retention time.Duration,
) error {
	e, asked, err := a.target(ctx, f, arg)
	if e == nil && asked.Type != "" && len(a.opened) == 1 && isNotKnown(err) {
		e, err = &events.Event{
			Store: &shared(a.opened)[0], Key: asked,
		}, nil // discarded before the first delivery
	}
	next := "no delivery of it runs; those that come are skipped"
	if e != nil && events.IsRequest(e.Key) {
		next = "409 given_up to its copies"
	}
	err = a.audited("event skip", auditOf(e, asked, reason), func() error {
		if err != nil {
			return err
		}
		if err := a.confirm("%s\nIt will be given up for good: no delivery of it will run.%s", describe(e), warnSkip(e)); err != nil {
			return err
		}
		err := e.Store.Operator().
			Discard(ctx, e.Key, retention, cmp.Or(reason, "by the operator's command"))
		if errors.Is(err, dedup.ErrSettled) && e.Deferred == nil {
			return found("event %q was handled already, there is nothing to skip", e.Key.ID)
		}
		if err != nil && !errors.Is(err, dedup.ErrSettled) {
			return fmt.Errorf("%s: %w", e.Store.Name, err)
		}
		if e.Deferred != nil {
			if err := e.TakeOut(ctx); err != nil {
				return err
			}
			next = e.Deferred.After()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return a.say(e, "skipped", next)
}

// isNotKnown reports whether err means that no store knows the event.
func isNotKnown(err error) bool {
	var exit *exitError
	return errors.As(err, &exit) && exit.code == exitFound
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
	ledgers, err := a.openStores(ctx)
	if err != nil {
		return nil, asked, err
	}
	all, query, err := a.find(ctx, ledgers, f, arg)
	asked = query.Key()
	if err != nil {
		return nil, asked, err
	}
	e, err = theOne(all, asked, f.looksDeferred())
	return e, asked, err
}

func auditOf(e *events.Event, asked dedup.Key, reason string) map[string]any {
	fields := map[string]any{
		"event": asked.ID, "scope": asked.Scope, "type": asked.Type, "tenant": asked.Tenant,
	}
	if reason != "" {
		fields["reason"] = reason
	}
	if e == nil {
		return fields
	}
	fields["type"], fields["tenant"], fields["store"] = e.Key.Type, e.Key.Tenant, e.Store.Name
	var states []string
	for _, r := range e.Records {
		states = append(states, r.State.String())
	}
	fields["before"] = strings.Join(states, ",")
	if e.Deferred != nil {
		fields["deferred"] = fmt.Sprintf(
			"%s/%d", e.Deferred.Partition.Topic, e.Deferred.Partition.Partition,
		)
	}
	return fields
}

// verbResult is the result of a verb.
type verbResult struct {
	Event  string `json:"event"`
	Type   string `json:"type"`
	Store  string `json:"store"`
	Result string `json:"result"`
	Next   string `json:"next"`
}

func (a *app) say(e *events.Event, result, next string) error {
	r := verbResult{
		Event: e.Key.ID, Type: e.Key.Type, Store: e.Store.Name, Result: result, Next: next,
	}
	return a.show(
		r,
		nil,
		[][]string{
			{result + ":", fmt.Sprintf("event %s of type %s in %s", r.Event, r.Type, r.Store)},
			{"next:", next},
		},
	)
}
