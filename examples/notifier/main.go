// Command notifier sends notifications by email, sms and push, each once, however often its event is delivered.
//
// Without flags it is a demonstration: Kafka, the store, a producer that repeats itself and workers of which one is
// killed, all in this process. With -brokers it is a worker. README.md says more.
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
)

// scope names who remembers. It is not the consumer group, which may be renamed without sending everything again.
const scope = "notification"

// newRouter says what happens to events: one handler per channel, and one for orders. What is remembered is (scope, type,
// event ID), so an event may go out once on each channel.
func newRouter(send sender, retention time.Duration) *idem.Router {
	router := idem.NewRouter(
		idem.Scope(scope),
		idem.Retention(retention),
		// A provider that is away or asks for patience holds up its partition for at most this long.
		idem.Retry(idem.RetryPolicy{
			MaxAttempts: 8, MinBackoff: 200 * time.Millisecond, MaxBackoff: 5 * time.Second, InPlace: 30 * time.Second,
		}),
	)
	idem.On(router, "email", notify(send))
	idem.On(router, "sms", notify(send))
	idem.On(router, "push", notify(send))
	idem.On(router, "order.paid", orderPaid(send))
	return router
}

// notify returns a handler. It need not know whether an event was seen before: it is called for those that were not, and
// forwards a key that is the same at every attempt. The sender's error says what happens next.
func notify(send sender) func(context.Context, idem.Event[notification]) error {
	return func(ctx context.Context, e idem.Event[notification]) error {
		n := e.Data
		n.EventID, n.Type = e.ID, e.Type // they may have come in headers
		return send.Send(ctx, n, e.IdempotencyKey())
	}
}

// orderPaid returns a handler that tells customers by mail that their orders are paid.
func orderPaid(send sender) func(context.Context, idem.Event[order]) error {
	return func(ctx context.Context, e idem.Event[order]) error {
		return send.Send(ctx, e.Data.notification(e.ID), e.IdempotencyKey())
	}
}

// work is the worker: it handles notifications until ctx ends, then finishes what it has begun, commits and leaves.
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
	ledger, err := openStore(ctx, o.store, o.log)
	if err != nil {
		return err
	}
	defer ledger.close()
	counts := &counter{}
	cfg := consumer.Config{
		Brokers:    o.brokers,
		Group:      o.group,
		Topics:     o.topics(),
		InstanceID: o.instance,
		Store:      ledger.Store,
		Lease:      o.lease,
		// What can never be sent goes to <topic>.<group>.dlq.
		CreateDeadLetterTopics: &consumer.TopicSpec{},
		Observers:              []idem.Observer{counts, watch},
		Logger:                 o.log,
	}
	stopPage, err := o.servePage(ctx, &cfg, ledger)
	if err != nil {
		return err
	}
	defer stopPage()
	c, err := consumer.New(cfg, newRouter(send, o.retention))
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
