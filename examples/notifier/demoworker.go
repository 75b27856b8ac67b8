package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/observe"
)

// demoWorker is a worker with a plug to pull.
type demoWorker struct {
	name   string
	plug   *plug
	sender *slowSender
	stop   context.CancelFunc
	ended  chan struct{}
	err    error // of Run; read it after ended
}

// start starts a worker. name is also its static group membership.
func (d *demo) start(name string) (*demoWorker, error) {
	w := &demoWorker{name: name, plug: newPlug(), ended: make(chan struct{})}
	w.sender = &slowSender{provider: d.provider, plug: w.plug, before: d.before, after: d.after,
		begun: make(chan struct{})}
	send, router := sender(w.sender), newRouter
	if d.steady {
		send = d.moody(w.sender)
		router = func(send sender, _ time.Duration) *idem.Router { return liveRouter(send) }
	}
	c, err := consumer.New(d.config(name, w.plug), router(send, demoRetention))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	d.workers = append(d.workers, w)
	go func() {
		defer close(w.ended)
		w.err = c.Run(ctx)
	}()
	return w, nil
}

// config returns the configuration of a worker.
func (d *demo) config(name string, p *plug) consumer.Config {
	cfg := consumer.Config{
		Brokers: d.addrs, Group: d.group, Topics: []string{d.topic}, InstanceID: name,
		Store:                  &pluggedStore{d.store, p},
		Lease:                  d.lease,
		Cooperative:            true,
		Grace:                  3 * time.Second,
		CommitInterval:         250 * time.Millisecond,
		CreateDeadLetterTopics: &consumer.TopicSpec{},
		Observers:              []observe.Observer{d.counts},
		Logger:                 d.log.With("worker", name),
		Sarama: func(c *sarama.Config) {
			c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, p
			c.Consumer.Group.Session.Timeout = 6 * time.Second
			// makes a rebalance visible soon
			c.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
			c.Metadata.Retry.Max = 2 // an unplugged worker gives up soon
		},
	}
	if d.monitor != nil {
		cfg.Observers = append(cfg.Observers, d.monitor)
	}
	if d.steady { // no worker is unplugged, and the page shows all abilities of the store
		cfg.Store, cfg.Lanes = d.store, 4
	}
	return cfg
}

// idle is how long the kill waits for a notification in flight. All events may be duplicates.
const idle = 2 * time.Second

// unplugInMidSend pulls the plug at a random moment while the worker is sending, or after a time
// without a notification. The result is the number of notifications in flight.
func (w *demoWorker) unplugInMidSend(
	ctx context.Context, most time.Duration,
) (inFlight int, err error) {
	late := time.NewTimer(idle)
	defer late.Stop()
	for waiting := true; waiting && inFlight == 0; {
		select {
		case <-w.sender.begun:
		case <-late.C:
			waiting = false
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		t := time.NewTimer(rand.N(most))
		<-t.C
		inFlight = int(w.sender.inFlight.Load())
	}
	w.plug.pull()
	w.stop() // frees the resources of the worker in this process
	return inFlight, nil
}

// failure returns the reason why a worker has ended by itself.
func (w *demoWorker) failure() error {
	select {
	case <-w.ended:
	default:
		return nil
	}
	if w.unplugged() {
		return nil
	}
	return fmt.Errorf("%s has ended: %w", w.name,
		errors.Join(w.err, errors.New("the demonstration needs it")))
}

func (w *demoWorker) unplugged() bool {
	select {
	case <-w.plug.out:
		return true
	default:
		return false
	}
}

// stopWorkers stops all workers as SIGTERM does, and waits.
func (d *demo) stopWorkers() error {
	var problems []error
	for _, w := range d.workers {
		w.stop()
	}
	for _, w := range d.workers {
		<-w.ended
		if w.err != nil && !w.unplugged() {
			problems = append(problems, fmt.Errorf("%s: %w", w.name, w.err))
		}
	}
	return errors.Join(problems...)
}
