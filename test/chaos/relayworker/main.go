//go:build unix

// Command relayworker is a relay for the tests of package chaos: an outbox in Postgres or MariaDB,
// a Kafka, and places where it dies or falls asleep. The standard output has a line for each step.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/outbox"
)

func main() {
	if err := run(context.Background()); err != nil {
		slog.Error("failed", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	brokers := flag.String("brokers", "", "")
	url, dsn := flag.String("postgres", "", ""), flag.String("mariadb", "", "instead of -postgres")
	lease, interval := flag.Duration("lease", 2*time.Second, ""), flag.Duration("interval", 0, "")
	batch, wake := flag.Int("batch", 0, ""), flag.Bool("wake", false, "")
	var t trap
	flag.DurationVar(&t.pace, "pace", 0, "what to wait before each publication")
	flag.Int64Var(&t.exit, "exit-after", 0, "the publication after which to die, before anything is marked")
	flag.Int64Var(&t.once, "stop-after", 0, "the publication after which to fall asleep")
	flag.Int64Var(&t.stop, "stop-every", 0, "after so many publications fall asleep, in turn before and after one of them")
	flag.Int64Var(&t.refuse.every, "refuse-every", 0, "refuse every n-th message")
	flag.BoolVar(&t.refuse.overtake, "overtake", false, "publish in order what is behind a refused message")
	flag.Parse()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	store, closeStore, err := open(ctx, *url, *dsn)
	if err != nil {
		return err
	}
	defer closeStore()
	p, err := consumer.OpenProducer(consumer.Config{Brokers: []string{*brokers}})
	if err != nil {
		return err
	}
	defer p.Close()
	t.Producer = p
	r, err := outbox.NewRelay(outbox.RelayConfig{
		Store: store, Producer: &t, Lease: *lease, Interval: *interval, Batch: *batch, Wake: *wake,
		Observers: []outbox.Observer{&rounds{}},
	})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// trap is a producer with a process around it that does not live for ever.
type trap struct {
	*consumer.Producer
	pace             time.Duration
	exit, once, stop int64
	calls            atomic.Int64
	refuse           refusal
}

// ProduceEach implements [outbox.Producer].
func (t *trap) ProduceEach(ctx context.Context, msgs []*idem.Message) []error {
	return t.produce(ctx, msgs, false, t.Producer.ProduceEach)
}

// ProduceInOrder implements [outbox.OrderedProducer].
func (t *trap) ProduceInOrder(ctx context.Context, msgs []*idem.Message) []error {
	return t.produce(ctx, msgs, true, t.Producer.ProduceInOrder)
}

func (t *trap) produce(
	ctx context.Context, msgs []*idem.Message, inOrder bool,
	call func(context.Context, []*idem.Message) []error,
) []error {
	if t.pace > 0 {
		select {
		case <-time.After(t.pace):
		case <-ctx.Done():
		}
	}
	n := t.calls.Add(1)
	sleeps := t.stop > 0 && n%t.stop == 0
	if sleeps && n/t.stop%2 == 1 {
		t.sleep("before")
	}
	errs := t.refuse.pass(ctx, msgs, inOrder, call)
	if n == t.once || sleeps && n/t.stop%2 == 0 {
		t.sleep("after")
	}
	if n == t.exit {
		fmt.Printf("dies: %d messages are published and not marked\n", len(msgs))
		os.Exit(9)
	}
	return errs
}

// sleep ends when another process sends SIGCONT. On a busy machine the process stops some
// milliseconds after the call of Kill, so the caller waits for SIGCONT too.
func (t *trap) sleep(when string) {
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	defer signal.Stop(woken)
	fmt.Printf("sleeps %s a publication\n", when)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // cannot fail
	<-woken
	fmt.Println("woken")
}

// rounds prints the rounds of the relay.
type rounds struct {
	total  int
	failed bool
}

// ObserveRound implements [outbox.RoundObserver].
func (r *rounds) ObserveRound(_ context.Context, o outbox.Round) {
	r.total += o.Sent
	if failed := o.Err != nil; o.Rows > 0 || failed != r.failed {
		r.failed = failed
		fmt.Printf("round total=%d rows=%d sent=%d failed=%d shards=%d delay=%s error=%v\n",
			r.total, o.Rows, o.Sent, o.Failed, o.Shards, o.Delay.Round(time.Millisecond), o.Err)
	}
}
