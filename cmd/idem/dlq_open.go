package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/internal/deadletters"
)

// dlqFlags are those of all commands.
type dlqFlags struct {
	topic, dlq string
}

func (o *dlqFlags) add(f *pflag.FlagSet) {
	f.StringVarP(
		&o.topic, "topic", "t", "", "source topic; the dead letters are in <topic>.<group>.dlq",
	)
	f.StringVar(&o.dlq, "dlq", "", "dead-letter topic with another name")
}

// topicName returns the name of the dead-letter topic.
func (o *dlqFlags) topicName(a *app) (string, error) {
	switch {
	case o.dlq != "" && o.topic != "":
		return "", usage("--topic or --dlq, not both")
	case o.dlq != "":
		return o.dlq, nil
	case o.topic == "":
		return "", usage("no dead-letter topic: give --topic, or --dlq")
	}
	group, err := a.theGroup()
	if err != nil {
		return "", err
	}
	return deadletter.Topic(group)(o.topic), nil
}

// filterFlags choose dead letters.
type filterFlags struct {
	types, classes []string
	id             string
	since, until   string
	at             []string
}

func (o *filterFlags) add(f *pflag.FlagSet) {
	f.StringSliceVar(&o.types, "type", nil, "event types")
	f.StringSliceVar(
		&o.classes, "class", nil, "error classes, such as failed, permanent, undecodable",
	)
	f.StringVar(&o.id, "id", "", "event ID")
	f.StringVar(&o.since, "since", "", "failed at or after `time`: "+timeForms)
	f.StringVar(&o.until, "until", "", "failed before `time`")
	f.StringSliceVar(&o.at, "at", nil, "this record, <partition>/<offset>")
}

// isSet reports whether a flag of the filter was given.
func (o *filterFlags) isSet() bool {
	return len(o.types)+len(o.classes)+len(o.at) > 0 || o.id != "" || o.since != "" || o.until != ""
}

func (o *filterFlags) filter() (f deadletters.Filter, err error) {
	for _, c := range o.classes {
		if !slices.Contains(classNames(), c) {
			return f, usage("--class has no %q, only %s", c, strings.Join(classNames(), ", "))
		}
	}
	f = deadletters.Filter{Types: o.types, Classes: o.classes, ID: o.id}
	if f.Since, err = parseTime("since", o.since); err != nil {
		return f, err
	}
	if f.Until, err = parseTime("until", o.until); err != nil {
		return f, err
	}
	for _, text := range o.at {
		p, err := parsePlace(text)
		if err != nil {
			return f, err
		}
		f.At = append(f.At, p)
	}
	return f, nil
}

// parsePlace reads <partition>/<offset>.
func parsePlace(text string) (deadletters.Place, error) {
	p, err := deadletters.ParsePlace(text)
	if err != nil {
		return p, usage("%w", err)
	}
	return p, nil
}

// deadLetters is a dead-letter topic with the app of the command.
type deadLetters struct {
	*deadletters.Queue
	app       *app
	decisions deadletters.Decisions
	leftAlone bool // a dead letter was not replayed
}

// decisionFlags adds the flags for the decisions of a person about dead letters that are otherwise
// left alone.
func decisionFlags(f *pflag.FlagSet, o *deadletters.Decisions) {
	f.BoolVar(
		&o.Again, "again", false,
		fmt.Sprintf("also events that were replayed %d times before and came back",
			deadletters.MaxGenerations),
	)
	f.BoolVar(
		&o.Forgotten, "forgotten", false,
		"also run events that the store does not know, at any age: "+
			"the store may have forgotten that they were handled",
	)
}

func (d *deadLetters) surveyAll(
	ctx context.Context, f deadletters.Filter, lines ...deadletters.Exported,
) (*deadletters.Survey, error) {
	total := d.Size()
	if len(f.At) > 0 {
		total = min(total, int64(len(f.At)))
	}
	seen := d.app.progress("records surveyed", total)
	defer seen.end()
	d.Surveyed = func() { seen.add(1, nil) }
	defer func() { d.Surveyed = nil }()
	return d.Survey(ctx, f, lines...)
}

// openDLQ connects to Kafka, and to the stores if they are to be asked.
func (a *app) openDLQ(ctx context.Context, o *dlqFlags, ask bool) (*deadLetters, error) {
	topic, err := o.topicName(a)
	if err != nil {
		return nil, err
	}
	a.about = map[string]any{"topic": topic}
	cfg := deadletters.Config{
		Topic: topic, Source: o.topic, Group: a.group, Scope: cmp.Or(a.scope, a.group),
	}
	if ask {
		if _, err := a.theGroup(); err != nil {
			return nil, err
		}
		stores, err := a.openStores(ctx)
		if err != nil {
			return nil, err
		}
		cfg.Stores = shared(stores)
	}
	if cfg.Client, err = a.kafka(ctx); err != nil {
		return nil, err
	}
	q, err := deadletters.Open(cfg)
	switch {
	case errors.Is(err, deadletters.ErrNoOperator):
		return nil, usage("%w", err)
	case errors.Is(err, deadletters.ErrNoTopic):
		return nil, found("%w", err)
	case err != nil:
		return nil, err
	}
	return &deadLetters{Queue: q, app: a}, nil
}

// survey reads the topic once, or the records that the filter names, and shows the progress.
func (d *deadLetters) survey(
	ctx context.Context, f deadletters.Filter, lines ...deadletters.Exported,
) (*deadletters.Survey, error) {
	s, err := d.surveyAll(ctx, f, lines...)
	if errors.Is(err, deadletters.ErrTooMany) {
		return nil, usage("%w: choose fewer, with --type or --id", err)
	}
	return s, err
}
