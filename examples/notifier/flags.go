package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// options holds the values of the flags.
type options struct {
	brokers                     []string // empty: the demonstration
	topic, group, store, sender string
	instance, health, ops       string
	client                      string // onSarama or onFranzGo
	lease, retention, stats     time.Duration
	log                         *slog.Logger
}

// topics returns the topics in -topic.
func (o *options) topics() []string {
	list := strings.Split(o.topic, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// usageError is a wrong value of a flag.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func parseFlags(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	var brokers string
	var verbose bool
	flags := flag.NewFlagSet("notifier", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr,
			"notifier: without -brokers a demonstration, with it a worker until SIGTERM.")
		flags.PrintDefaults()
	}
	flags.StringVar(&brokers, "brokers", "", "Kafka brokers, `host:port`, separated by commas")
	flags.StringVar(&o.topic, "topic", "notifications",
		"topic of the events; several are separated by commas")
	flags.StringVar(&o.group, "group", "notifier", "consumer group")
	flags.StringVar(&o.store, "store", "",
		"store: sqlite:FILE (one worker), redis://host:port/db, postgres://user@host/db or memory;\n"+
			"the demonstration takes sqlite:FILE only (default sqlite:"+demoFile+")")
	flags.StringVar(&o.sender, "sender", "log",
		"sender: log (lines of JSON on standard output), smtp://host:port or http://host/path")
	flags.StringVar(&o.instance, "instance-id", "",
		"static group membership: a restart under the same `ID` goes on at once")
	flags.DurationVar(&o.lease, "lease", 30*time.Second,
		"time after which another worker takes over the event of a crashed one; at least 1s")
	flags.DurationVar(&o.retention, "retention", 4*time.Hour,
		"time for which the store remembers a notification; later copies are sent again")
	flags.DurationVar(&o.stats, "stats", 0, "log counts at this interval; default: only at the end")
	flags.StringVar(&o.client, "client", onSarama, "Kafka client of the worker: "+onSarama+" or "+onFranzGo)
	flags.StringVar(&o.health, "health", "", "serve /healthz and /readyz at this `address`")
	flags.StringVar(&o.ops, "ops", "",
		"serve the ops page at this loopback `address`, such as 127.0.0.1:8080;\n"+
			"without -brokers the demonstration then goes on until Ctrl-C")
	flags.BoolVar(&verbose, "v", false, "log more")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	o.log = newLogger(stderr, brokers != "", verbose)
	for b := range strings.SplitSeq(brokers, ",") {
		if b = strings.TrimSpace(b); b != "" {
			o.brokers = append(o.brokers, b)
		}
	}
	set := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { set[f.Name] = true })
	delete(set, "v")
	if err := o.check(flags.Args(), set); err != nil {
		fmt.Fprintf(stderr, "notifier: %v\nnotifier -help lists the flags\n", err)
		return nil, usageError{err}
	}
	return o, nil
}

// newLogger logs to standard error, because the log sender writes to standard output. The
// demonstration logs with -v only.
func newLogger(stderr io.Writer, worker, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	switch {
	case verbose:
		level = slog.LevelDebug
	case !worker:
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
}

// check finds missing and wrong values. set holds the names of the given flags, except -v.
func (o *options) check(args []string, set map[string]bool) error {
	var problems []error
	add := func(bad bool, format string, a ...any) {
		if bad {
			problems = append(problems, fmt.Errorf(format, a...))
		}
	}
	add(len(args) > 0, "unexpected argument %q", strings.Join(args, " "))
	add(o.ops != "" && !loopbackAddress(o.ops),
		"-ops %s is not a loopback address: the page of this example has no authentication", o.ops)
	if len(o.brokers) == 0 {
		_, isFile := sqlitePath(o.store)
		add(set["store"] && (!isFile || set["ops"]), "without -brokers, -store must be sqlite:FILE, "+
			"and -ops keeps its store in memory")
		delete(set, "ops")
		delete(set, "store")
		add(len(set) > 0, "-brokers is missing; without it there is only the demonstration, "+
			"which takes no other flags but -ops or -store")
		return errors.Join(problems...)
	}
	add(slices.Contains(o.topics(), ""), "-topic is empty")
	add(o.group == "", "-group is empty")
	add(o.store == "", "-store is missing: sqlite:FILE, redis://host:port/db, "+
		"postgres://user@host/db or memory")
	add(o.client != onSarama && o.client != onFranzGo, "-client %q is neither %s nor %s", o.client,
		onSarama, onFranzGo)
	add(o.stats < 0, "-stats %s is negative", o.stats)
	add(o.lease < time.Second, "-lease %s is shorter than 1s", o.lease)
	// The store must remember an event for a lease, the retries and a rebalance.
	shortest := o.lease + 2*time.Minute
	add(o.retention < shortest, "-retention %s is shorter than the lease and two minutes (%s)",
		o.retention, shortest)
	if o.store != "" {
		_, err := storeKind(o.store)
		add(err != nil, "%w", err)
	}
	_, err := newSender(o.sender, io.Discard)
	add(err != nil, "%w", err)
	return errors.Join(problems...)
}
