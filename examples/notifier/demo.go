package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/examples/internal/cli"
	"github.com/idem-go/idem/ops"
)

// demo is the demonstration. Everything runs in this process: a Kafka broker, the provider that
// sends, and workers like the real one. The store outlives the process in a file.
type demo struct {
	events, copies int
	partitions     int32
	feeding        time.Duration // time in which the events are written
	// time of a sender until a notification is out, and until the answer is back
	before, after time.Duration
	limit         time.Duration // of everything but the end
	lease         time.Duration
	store         dedup.Store
	file          string // of the store; empty: in memory
	log           *slog.Logger
	screen        *screen

	earlier earlier // runs on the same store

	topic, group string
	addrs        []string
	client       *kgo.Client
	admin        *kadm.Client
	provider     *provider
	counts       *counter
	feed         *feed
	workers      []*demoWorker

	steady  bool         // runs until it is stopped, see live.go
	monitor *ops.Monitor // for the page
	moods   *moody
}

// moody returns the sender of the demonstration that does not end. Workers share the memory of the
// provider.
func (d *demo) moody(send sender) sender {
	if d.moods == nil {
		d.moods = &moody{seen: make(map[string]int)}
	}
	return &moodySender{d.moods, send}
}

func newDemo(out io.Writer, log *slog.Logger, store dedup.Store) *demo {
	return &demo{
		events: 1000, copies: 350, partitions: 6,
		feeding: 8 * time.Second, limit: 24 * time.Second, lease: 2 * time.Second,
		before: 10 * time.Millisecond, after: 10 * time.Millisecond,
		store: store, log: log, screen: newScreen(out),
		topic: "notifications", group: "notifier", provider: newProvider(), counts: &counter{},
	}
}

// runDemo returns the exit code.
func runDemo(ctx context.Context, o *options, out io.Writer) int {
	store, file, err := openDemoStore(ctx, o.store)
	if err != nil {
		fmt.Fprintf(out, "FAILED: %v\n", err)
		return cli.ExitError
	}
	defer store.Close()
	d := newDemo(out, o.log, store)
	d.file = file
	s, err := d.run(ctx)
	d.screen.clear()
	if err != nil {
		fmt.Fprintf(out, "FAILED: %v\n", err)
		return cli.ExitError
	}
	s.print(out)
	fmt.Fprintf(out, "\nThe store stays in %s\n"+
		"Run again, and all events are duplicates. To begin anew: rm '%[1]s'*\n", file)
	if len(s.problems()) > 0 {
		return cli.ExitError
	}
	return cli.ExitOK
}

// errTimeUp ends a demonstration that hangs. The summary then shows the missing events.
var errTimeUp = errors.New("time is up")

// run plays the demonstration and measures the result.
func (d *demo) run(ctx context.Context) (s summary, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.limit, errTimeUp)
	defer cancel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(d.partitions, d.topic))
	if err != nil {
		return s, err
	}
	defer cluster.Close()
	d.addrs = cluster.ListenAddrs()
	if d.client, err = kgo.NewClient(kgo.SeedBrokers(d.addrs...)); err != nil {
		return s, err
	}
	defer d.client.Close()
	d.admin = kadm.NewClient(d.client)

	p := newPlan(d.topic, d.events, d.copies, 1)
	d.feed = &feed{client: d.client, records: p.records, over: d.feeding}
	s.events, s.poison = len(p.events), len(p.poison)
	if d.earlier, err = recall(ctx, d.store, p); err != nil {
		return s, err
	}
	s.known, s.givenUp = len(d.earlier.done), len(d.earlier.dead)
	err = d.play(ctx, &s)
	if s.hung = errors.Is(err, errTimeUp); s.hung {
		err = nil
	}
	if err := errors.Join(err, d.stopWorkers()); err != nil {
		return s, err
	}
	err = d.measure(p, &s)
	s.took = time.Since(d.screen.begin)
	return s, err
}

// play runs the sequence: a worker, a second one, a kill, a replacement, and the rest of the
// events.
func (d *demo) play(ctx context.Context, s *summary) error {
	d.screen.say("Kafka runs in this process: topic %s, %d partitions; the store is %s and knows "+
		"%d of %d events", d.topic, d.partitions, cmp.Or(d.file, "in memory"), s.known, s.events)
	first, err := d.start("worker-1")
	if err != nil {
		return err
	}
	if err := d.until(ctx, d.lanes("worker-1", int(d.partitions))); err != nil {
		return err
	}
	d.screen.say("worker-1 has all partitions; a producer begins to write %d records",
		len(d.feed.records))

	fed := make(chan error, 1)
	feeding, stopFeed := context.WithCancelCause(ctx)
	go func() { fed <- d.feed.run(feeding) }()
	err = d.crowd(ctx, s, first)
	if err != nil {
		stopFeed(err)
	}
	feedErr := <-fed
	stopFeed(nil)
	if err := errors.Join(err, feedErr); err != nil {
		return err
	}
	d.screen.say("all records are written; waiting until every record is committed")
	return d.until(ctx, d.committed)
}

// crowd starts and kills workers while events flow.
func (d *demo) crowd(ctx context.Context, s *summary, first *demoWorker) error {
	if err := d.until(ctx, d.fed(0.25)); err != nil {
		return err
	}
	if _, err := d.start("worker-2"); err != nil {
		return err
	}
	if err := d.until(ctx, d.lanes("worker-2", 1)); err != nil {
		return err
	}
	d.screen.say("worker-2 has joined and taken over some partitions")
	if err := d.until(ctx, d.fed(0.5)); err != nil {
		return err
	}
	lanes, err := d.lanesOf(ctx, "worker-1")
	if err != nil {
		return err
	}
	inFlight, err := first.unplugInMidSend(ctx, d.before+d.after)
	if err != nil {
		return err
	}
	s.kills, s.lanes = 1, lanes
	d.screen.say("worker-1 is unplugged in the middle: %d partitions, %d in flight; "+
		"the group is not notified", lanes, inFlight)
	if err := d.until(ctx, d.fed(0.6)); err != nil {
		return err
	}
	if _, err = d.start("worker-1"); err == nil {
		d.screen.say("worker-1 is replaced, under the same instance ID")
		err = d.until(ctx, d.fed(1))
	}
	return err
}
