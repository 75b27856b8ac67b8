package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lane"
)

// GroupHandler is a sarama.ConsumerGroupHandler that takes messages through an [idem.Router], for programs that have a
// sarama.ConsumerGroup already. Create it with [NewGroupHandler], give it to every Consume of one group, and close it after
// the group. Set up the group with [DefaultSaramaConfig], or see there what it must not do. sarama's Errors must be
// read; give what comes to [GroupHandler.NoteError]. Subscribe to what [GroupHandler.Topics] returns. Give it a client with
// [GroupHandler.UseClient].
//
// When a partition is revoked or the context of Consume ends, nothing new is begun, what runs is given the grace, and the
// offsets are committed before the partition is given back. When the session was lost, handlers are cancelled at once
// and nothing is committed.
type GroupHandler struct {
	cfg    Config
	proc   *idem.Processor
	log    *slog.Logger
	obs    observers
	health commitHealth
	delays []time.Duration // of topics for later attempts
	busy   *busyNotes

	// prepare, if not nil, runs before the first claims of a session start. Its error ends the session.
	prepare func(sarama.ConsumerGroupSession) error
	// ownsContext says that the context of Consume ends with the cause idem.ErrStopping and for no other reason. A session that
	// was merely cancelled has then lost its partitions in a cooperative rebalance: sarama tells no more.
	ownsContext bool
	// stopping, if not nil, reports whether that context has ended. sarama watches it too, and may cancel its session before
	// the cause of our stop has reached it.
	stopping func() bool

	// oldest, if not nil, finds the first offset in the log.
	oldest func(topic string, partition int32) (int64, error)

	// ends, if not nil, finds the ends of logs. A session keeps what it began with.
	ends    asker
	ownEnds *ends // of UseClient
	warned  atomic.Bool
	// direct, if not nil, commits beside sarama.
	direct *directCommits

	committers sync.WaitGroup

	mu        sync.Mutex
	sessions  map[sarama.ConsumerGroupSession]*session
	lastCause error // why the last session ended
	fatal     error // why nothing more can be consumed
	abandoned error // handlers that were left behind when the last claims ended
	ending    error // why we end the session ourselves
	unsafe    error // offsets that could not be committed at the stop
}

var _ sarama.ConsumerGroupHandler = (*GroupHandler)(nil)

// NewGroupHandler checks all wiring and returns every mistake, joined. It uses no network. Of cfg it needs Group and, as
// a rule, Store and Producer (see [NewProducer]); Brokers, Topics and what belongs to connections mean nothing here.
func NewGroupHandler(cfg Config, r *idem.Router) (*GroupHandler, error) {
	cfg = cfg.withDefaults()
	h, err := newGroupHandler(cfg, r)
	if err := errors.Join(append(cfg.validate(false), err)...); err != nil {
		if h != nil {
			_ = h.Close() // nothing ran
		}
		return nil, err
	}
	return h, nil
}

// newGroupHandler expects defaults in cfg.
func newGroupHandler(cfg Config, r *idem.Router) (*GroupHandler, error) {
	obs, others := sortObservers(cfg.Observers)
	busy := new(busyNotes)
	if cfg.WhenStalled != ReportStall {
		others = append(others, busy)
	}
	proc, err := idem.NewProcessor(r, idem.Config{
		Store: cfg.Store, Scope: cfg.Scope, Group: cfg.Group, Lease: cfg.Lease, StoreTimeout: cfg.StoreTimeout, BusyWait: idem.Forever, Grace: cfg.Grace,
		Producer: cfg.Producer, DeadLetterTopic: cfg.DeadLetterTopic, Observers: others, Logger: cfg.Logger, ErrorText: cfg.ErrorText, Shadow: cfg.Shadow,
	})
	if err != nil {
		return nil, err
	}
	if err := checkVolatile(proc.Stores()); err != nil {
		return nil, errors.Join(err, proc.Close())
	}
	h := &GroupHandler{
		cfg: cfg, proc: proc, log: cfg.Logger, obs: obs, delays: proc.RetryDelays(), busy: busy,
		sessions: make(map[sarama.ConsumerGroupSession]*session),
	}
	h.health.log = cfg.Logger
	return h, nil
}

// Setup begins a session. sarama calls it.
func (h *GroupHandler) Setup(sess sarama.ConsumerGroupSession) error {
	if err := h.Err(); err != nil {
		return err
	}
	if h.prepare != nil {
		if err := h.prepare(sess); err != nil {
			return err
		}
	}
	s := newSession(h, sess)
	h.mu.Lock()
	h.sessions[sess] = s
	h.lastCause, h.abandoned = nil, nil
	h.mu.Unlock()
	h.warnWithoutClient(s)
	s.announce(sess.Claims())
	h.committers.Go(s.commitLoop)
	h.committers.Go(s.watch)
	if s.recorder != nil {
		h.committers.Go(s.recorder.loop)
	}
	return nil
}

// Cleanup ends a session, after its claims. sarama calls it.
func (h *GroupHandler) Cleanup(sess sarama.ConsumerGroupSession) error {
	cause := context.Cause(sess.Context())
	h.mu.Lock()
	s := h.sessions[sess]
	delete(h.sessions, sess)
	h.lastCause = cause
	h.mu.Unlock()
	if s != nil { // nil if Setup failed
		s.close(cause)
	}
	return nil
}

// ConsumeClaim handles one partition until it is taken away. sarama calls it. An error says that the partition cannot go on;
// sarama then ends the session, and [GroupHandler.Err] tells why.
func (h *GroupHandler) ConsumeClaim(sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	h.mu.Lock()
	s := h.sessions[sess]
	h.mu.Unlock()
	if s == nil {
		return errors.New("consumer: ConsumeClaim without Setup")
	}
	h.proc.Assigned(claim.Topic(), claim.Partition())
	l := lane.New(h.proc, claim.Topic(), claim.Partition(), lane.Config{Lanes: h.cfg.Lanes, OwnProgress: true})
	c := s.begin(claim, l)
	defer c.giveUp(nil)
	pump(c.ctx, claim, l, c.times, h.proc.Due)
	return s.end(c, h.endOf(sess.Context()))
}

// endOf says how claims end whose session has this context: nil in order, ErrPartitionLost if they may be somebody else's
// already.
func (h *GroupHandler) endOf(ctx context.Context) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil: // only this claim ends: a cooperative revoke, or the partition cannot be fetched any longer
		return nil
	case isLost(cause), h.ownsContext && errors.Is(cause, context.Canceled) && !errors.Is(cause, idem.ErrStopping) && !h.stops():
		return fmt.Errorf("%w: %w", idem.ErrPartitionLost, cause)
	}
	return nil
}

func (h *GroupHandler) stops() bool { return h.stopping != nil && h.stopping() }

// Err returns why nothing more can be consumed, such as [idem.ErrNoProducer] or too many handlers that hang. Consume fails
// with it from then on. Nil while all is well.
func (h *GroupHandler) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fatal
}

func (h *GroupHandler) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fatal == nil {
		h.fatal = err
	}
}

// leftBehind notes a claim that ended although a handler of it did not.
func (h *GroupHandler) leftBehind(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.abandoned = errors.Join(h.abandoned, err)
}

// NoteError takes an error from sarama's ConsumerGroup.Errors, so that failing commits can be told: sarama returns no
// error from a commit. A [Consumer] does this itself.
func (h *GroupHandler) NoteError(err error) {
	if err != nil {
		h.health.note(err)
	}
}

// Close ends what outlives a session. Call it when the group is closed. An error that matches [idem.ErrAbandoned] says
// that handlers still hang.
func (h *GroupHandler) Close() error {
	h.committers.Wait()
	h.ownEnds.close()
	return h.proc.Close()
}

// UseClient lets the handler ask the brokers for the ends of its partitions, which sarama does not tell a handler. Call it
// before the first Consume, with the client of the group or another one of the same cluster. The client stays the caller's to
// close, after [GroupHandler.Close].
//
// Without a client, a partition is never known to be caught up. Its consumed time is that of its last record, so that a store
// in consumed time forgets nothing of the scope while one of its partitions is idle.
func (h *GroupHandler) UseClient(client sarama.Client) {
	h.ownEnds = newEnds(client)
	h.ends = h.ownEnds
}

// warnWithoutClient says once that a store will not forget.
func (h *GroupHandler) warnWithoutClient(s *session) {
	if s.recorder == nil || s.ends != nil || h.warned.Swap(true) {
		return
	}
	h.log.Warn("the ends of partitions are not known: the store forgets nothing while a partition is idle, call UseClient", "group", h.cfg.Group)
}

// endSession ends the sessions in order, all claims of them, so that Consume returns.
func (h *GroupHandler) endSession(cause error) {
	h.mu.Lock()
	if h.ending == nil {
		h.ending = cause
	}
	h.mu.Unlock()
	for _, c := range h.claims() {
		c.giveUp(cause)
	}
}

// takeEnding returns why we ended the last session ourselves, once.
func (h *GroupHandler) takeEnding() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.ending
	h.ending = nil
	return err
}

// joined reports whether there is a session.
func (h *GroupHandler) joined() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sessions) > 0
}

// released reports whether no claim is left that has something to finish or to commit.
func (h *GroupHandler) released() bool {
	h.mu.Lock()
	sessions := slices.Collect(maps.Values(h.sessions))
	h.mu.Unlock()
	return !slices.ContainsFunc(sessions, (*session).busy)
}

// claims returns what is being consumed now.
func (h *GroupHandler) claims() (all []*claimed) {
	h.mu.Lock()
	sessions := slices.Collect(maps.Values(h.sessions))
	h.mu.Unlock()
	for _, s := range sessions {
		all = append(all, s.list()...)
	}
	return all
}

// endWait bounds how long the end of a claim takes beyond the grace: handlers are abandoned at its end, and what is known
// is still recorded in the store.
func (c Config) endWait() time.Duration {
	return c.Grace + min(c.Grace/3, 10*time.Second) + 100*time.Millisecond
}
