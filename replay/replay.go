package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/internal/bootstrap"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// Replay runs a window through the handlers of a group. Create one with [New], and call Close at
// the end. Safe for concurrent use.
type Replay struct {
	live     consumer.Config // with the group and scope of the replay
	neutral  runner.Config   // its defaults
	cfg      Config
	topics   []string
	scope    string
	proc     *idem.Processor
	start    *runner.StoreStart
	failures *failures
	tally    *tally

	running sync.Mutex // held by Run

	mu     sync.Mutex
	client sarama.Client // nil before the first use
	closed bool
}

// New checks the configurations and the router, and returns every mistake, joined. New uses no
// network.
//
// live is the configuration of the group, as for [consumer.New]. A replay uses its brokers, topics,
// group, scope, store, leases, lanes, queue, grace, producer, dead-letter topic, logger and
// security. It does not use the settings of a member of a group, of offsets and of stalls, the
// observers, CreateDeadLetterTopics, NewScope and AcceptNewIdentity. Shadow is refused.
//
// A store that loses all records with the process is refused, unless it was created for that.
func New(live consumer.Config, r *idem.Router, cfg Config) (*Replay, error) {
	cfg = cfg.withDefaults()
	rep := &Replay{live: live, cfg: cfg, topics: live.Topics}
	rep.failures = &failures{limit: max(cfg.MaxFailed, 0)}
	rep.tally = &tally{failures: rep.failures}
	group := neutral(live)
	rep.neutral = ofReplay(group, cfg)
	rep.scope = group.Scope + cfg.Scope.suffix()

	problems := group.Validate(true) // retry topics are those of the live group
	problems = append(problems, cfg.validate(live.Topics))
	if len(live.Brokers) == 0 {
		problems = append(problems, errors.New("Config.Brokers is empty"))
	}
	if live.Shadow {
		problems = append(problems,
			errors.New("Config.Shadow is set: a replay cannot run in shadow mode"))
	}
	_, err := rep.sarama()
	proc, procErr := idem.NewProcessor(r, rep.processorConfig())
	if err := errors.Join(append(problems, err, procErr)...); err != nil {
		if proc != nil {
			_ = proc.Close() // nothing ran
		}
		return nil, err
	}
	err = errors.Join(cfg.checkOrder(proc.KeyOrdered()), runner.CheckVolatile(proc.Stores()))
	if err != nil {
		return nil, errors.Join(err, proc.Close())
	}
	rep.proc, rep.start = proc, runner.NewStoreStart(rep.neutral, proc)
	return rep, nil
}

// neutral returns the settings of the live group that do not depend on sarama, with defaults.
func neutral(live consumer.Config) runner.Config {
	return runner.Config{
		Group: live.Group, Topics: live.Topics, Store: live.Store, Scope: live.Scope,
		Lease: live.Lease, StoreTimeout: live.StoreTimeout, Lanes: live.Lanes,
		QueueBytes: live.QueueBytes, Grace: live.Grace, DeadLetterTopic: live.DeadLetterTopic,
		Logger: live.Logger, ErrorText: live.ErrorText,
	}.WithDefaults()
}

// ofReplay returns the settings of the replay. An own scope has a group of its own, so that metrics
// and dead letters name the replay. The processor adds the suffix of the scope.
func ofReplay(c runner.Config, cfg Config) runner.Config {
	if cfg.Scope.same {
		return c
	}
	c.Group += cfg.Scope.suffix()
	if c.DeadLetterTopic = cfg.DeadLetterTopic; c.DeadLetterTopic == nil {
		c.DeadLetterTopic = func(string) string { return "" } // log lines name no topic
	}
	return c
}

func (r *Replay) processorConfig() idem.Config {
	c := r.neutral
	return idem.Config{
		Store: c.Store, Scope: c.Scope, Group: c.Group, Lease: c.Lease, StoreTimeout: c.StoreTimeout,
		BusyWait: idem.Forever, Grace: c.Grace, Producer: r.failures, DeadLetterTopic: c.DeadLetterTopic,
		Replay:    &idem.Replay{ScopeSuffix: r.cfg.Scope.suffix()},
		Observers: append([]observe.Observer{r.tally}, r.cfg.Observers...),
		Logger:    c.Logger, ErrorText: c.ErrorText,
	}
}

// publishes reports whether dead letters go to a topic.
func (r *Replay) publishes() bool { return r.cfg.Scope.same || r.cfg.DeadLetterTopic != nil }

// answerWait bounds the wait for an answer of a broker, and so the time that a stop lasts.
const answerWait = 15 * time.Second

// sarama returns the settings of the client.
func (r *Replay) sarama() (*sarama.Config, error) {
	live := r.live
	live.ClientID = cmp.Or(live.ClientID, "idem-replay")
	sc, err := consumer.DefaultSaramaConfig(live)
	if err != nil {
		return nil, err
	}
	sc.Net.ReadTimeout = min(sc.Net.ReadTimeout, answerWait)
	return sc, nil
}

// connected returns the client, and connects at the first call.
func (r *Replay) connected(ctx context.Context) (sarama.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	if r.client != nil {
		return r.client, nil
	}
	sc, err := r.sarama()
	if err != nil {
		return nil, err
	}
	client, err := bootstrap.Client(ctx, r.live.Brokers, sc)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka: %w", err)
	}
	r.client = client
	return client, nil
}

// Close closes the connections. Call Close after the last Run has returned; Close waits for a Run
// that still works. The error matches [idem.ErrAbandoned] if handlers were left running.
func (r *Replay) Close() error {
	r.running.Lock()
	defer r.running.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	err := r.proc.Close()
	if r.client != nil {
		err = errors.Join(err, r.client.Close())
	}
	return err
}
