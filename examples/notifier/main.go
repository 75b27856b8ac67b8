// Command notifier sends notifications by email, sms and push, each once, however often Kafka
// delivers the event.
//
// Without flags the program is a demonstration that runs in this process alone: Kafka, the store, a
// producer that repeats itself, and workers, one of which is killed. With -brokers it works for a
// real Kafka. README.md has the details.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/examples/internal/cli"
	"github.com/idem-go/idem/examples/internal/telemetry"
	"github.com/idem-go/idem/observe"
)

// scope is the namespace of the events in the store. The scope differs from the consumer group, so
// that the group can be renamed without sending all notifications again.
const scope = "notification"

// newRouter registers one handler per channel, and one for orders. The key of an event in the store
// is (scope, type, event ID), so an event may go out once on each channel.
func newRouter(send sender, retention time.Duration) *idem.Router {
	router := idem.NewRouter(
		idem.Scope(scope),
		idem.Retention(retention),
		// A notification that fails holds up its partition for at most InPlace. Then it becomes a
		// dead letter.
		idem.Retry(idem.RetryPolicy{
			MaxAttempts: 8, MinBackoff: 200 * time.Millisecond, MaxBackoff: 5 * time.Second,
			InPlace: 30 * time.Second,
		}),
		// While the provider is down, all notifications wait, and one of each channel tries every
		// ten seconds. None becomes a dead letter.
		idem.CircuitBreaker(5, 10*time.Second),
	)
	idem.On(router, "email", notify(send))
	idem.On(router, "sms", notify(send))
	idem.On(router, "push", notify(send))
	idem.On(router, "order.paid", orderPaid(send))
	return router
}

// notify returns a handler. Idem calls the handler for new events only, so the handler does not
// look for duplicates. The handler forwards a key that is the same at every attempt. The error of
// the sender decides about retries.
func notify(send sender) func(context.Context, idem.Event[notification]) error {
	return func(ctx context.Context, e idem.Event[notification]) error {
		n := e.Data
		n.EventID, n.Type = e.ID, e.Type // may have come in headers
		return send.Send(ctx, n, e.IdempotencyKey())
	}
}

// orderPaid returns a handler that mails customers about their paid orders.
func orderPaid(send sender) func(context.Context, idem.Event[order]) error {
	return func(ctx context.Context, e idem.Event[order]) error {
		return send.Send(ctx, e.Data.notification(e.ID), e.IdempotencyKey())
	}
}

// work runs the worker: it handles notifications until ctx ends, then finishes the running ones,
// commits and leaves the group.
func (o *options) work(ctx context.Context, stdout io.Writer) error {
	send, err := newSender(o.sender, stdout)
	if err != nil {
		return usageError{err}
	}
	watch, endTelemetry, err := telemetry.Observe(ctx, "notifier", o.log)
	if err != nil {
		return err
	}
	defer endTelemetry()
	store, err := openStore(ctx, o.store, o.log)
	if err != nil {
		return err
	}
	defer store.close()
	counts := &counter{}
	cfg := consumer.Config{
		Brokers:    o.brokers,
		Group:      o.group,
		Topics:     o.topics(),
		InstanceID: o.instance,
		Store:      store.Store,
		Lease:      o.lease,
		// A notification that can never be sent goes to <topic>.<group>.dlq.
		CreateDeadLetterTopics: &consumer.TopicSpec{},
		Observers:              []observe.Observer{counts, watch},
		Logger:                 o.log,
	}
	stopPage, err := o.servePage(ctx, &cfg, store)
	if err != nil {
		return err
	}
	defer stopPage()
	c, err := o.newWorker(cfg, newRouter(send, o.retention))
	if err != nil {
		return err
	}
	stop, err := serveHealth(ctx, o.health, c.Handler(), o.log)
	if err != nil {
		return err
	}
	defer stop()
	defer counts.report(ctx, o.log, o.stats)()
	err = c.Run(ctx)
	o.log.Info("stopped", "counts", counts)
	return err
}

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stderr)
	if err != nil {
		return cli.Usage(err)
	}
	ctx, stop := cli.UntilSignal(ctx)
	defer stop()
	switch {
	case len(o.brokers) == 0 && o.ops != "":
		return runLive(ctx, o, stdout)
	case len(o.brokers) == 0:
		return runDemo(ctx, o, stdout)
	}
	err = o.work(ctx, stdout)
	var usage usageError
	switch {
	case errors.As(err, &usage):
		o.log.Error(err.Error())
		return cli.ExitUsage
	case err != nil:
		o.log.Error("failed", "error", idem.ErrorText(err))
		return cli.ExitError
	}
	return cli.ExitOK
}
