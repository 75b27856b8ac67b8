package consumer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/lane"
	"github.com/idem-go/idem/runner"
)

// GroupHandler is a sarama.ConsumerGroupHandler that runs an [idem.Router], for programs that have
// a sarama.ConsumerGroup already. Create a GroupHandler with [NewGroupHandler], pass it to every
// Consume of one group, and close it after the group.
//
// The program must:
//   - set up the group with [DefaultSaramaConfig], or keep to the rules listed there,
//   - subscribe to the topics of [GroupHandler.Topics],
//   - read sarama's Errors and pass them to [GroupHandler.NoteError],
//   - pass a client to [GroupHandler.UseClient].
//
// When a partition is revoked or the context of Consume ends, no new handler begins and running
// handlers have the grace. The offsets are committed before the partition is given back. When the
// session was lost, handlers are cancelled at once and no offset is committed.
type GroupHandler struct {
	groupState
	delays []time.Duration // of retry topics

	// prepare, if not nil, runs at the start of a session, before any assignment begins. An error
	// ends the session.
	prepare func(sarama.ConsumerGroupSession) error
	ownEnds *ends // of UseClient
	warned  atomic.Bool

	running sync.WaitGroup // the goroutines of sessions

	mu       sync.Mutex
	sessions map[sarama.ConsumerGroupSession]*session
}

var _ sarama.ConsumerGroupHandler = (*GroupHandler)(nil)

// NewGroupHandler checks cfg and the router, and returns every mistake, joined. NewGroupHandler
// uses no network. Set Group in cfg, and usually Store and Producer (see [NewProducer]). Brokers,
// Topics and the settings of connections are ignored.
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
	obs, others := runner.SortObservers(cfg.Observers)
	busy := new(busyNotes)
	if cfg.WhenStalled != ReportStall {
		others = append(others, busy)
	}
	proc, err := runner.NewProcessor(cfg.neutral(), r, others)
	if err != nil {
		return nil, err
	}
	h := &GroupHandler{
		delays: proc.RetryDelays(), sessions: make(map[sarama.ConsumerGroupSession]*session),
	}
	h.cfg, h.proc, h.log, h.obs, h.busy = cfg, proc, cfg.Logger, obs, busy
	h.health.log, h.health.text = cfg.Logger, cfg.errorText
	h.health.group, h.health.observers = cfg.Group, obs.Commit
	return h, nil
}

// Topics returns the topics to subscribe to for the events of sources. These are the sources, a
// retry topic of each source for each delay that a handler declares, and one for replays
// ([deadletter.RetryTopic]). Pass all topics to every Consume of the group. A [Consumer] does this
// itself.
//
// sarama consumes nothing while one of the topics does not exist. Create them all, or leave out the
// topics for replays: then dead letters cannot be replayed.
//
// Begin at the oldest record where no offset is committed. With sarama.OffsetNewest, copies that
// are written before the first assignment never run.
func (h *GroupHandler) Topics(sources ...string) []string {
	return h.names().Topics(sources...)
}

func (h *GroupHandler) names() runner.GroupTopics {
	return runner.GroupTopics{Group: h.cfg.Group, Delays: h.delays}
}

// Register lets the stores compare the scope and the identity functions of this consumer with the
// record, as [Consumer.Run] does at the start. See [idem.Processor.Register] for the fields and
// errors. Call Register before the first Consume, with the topics, and with NoOffsets if the group
// has no committed offset there.
func (h *GroupHandler) Register(ctx context.Context, r dedup.Registration) error {
	return h.proc.Register(ctx, r)
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
	s := newSession(&h.groupState, sess)
	h.mu.Lock()
	h.sessions[sess] = s
	h.mu.Unlock()
	h.noteSession(nil, true)
	h.warnWithoutClient(s)
	s.announce(sess.Claims())
	h.running.Go(s.commitLoop)
	stalls := &stallWatch{
		s: s, leave: h.endSession, policy: h.cfg.WhenStalled, after: h.cfg.StallTimeout,
	}
	h.running.Go(stalls.run)
	if s.recorder != nil {
		h.running.Go(func() { s.recorder.loop(s.stop) })
	}
	return nil
}

// Cleanup ends a session, after its assignments. sarama calls it.
func (h *GroupHandler) Cleanup(sess sarama.ConsumerGroupSession) error {
	cause := context.Cause(sess.Context())
	h.mu.Lock()
	s := h.sessions[sess]
	delete(h.sessions, sess)
	h.mu.Unlock()
	h.noteSession(cause, false)
	if s != nil { // nil if Setup failed
		s.close(cause)
	}
	return nil
}

// ConsumeClaim handles one partition until it is taken away. sarama calls it. An error means that
// the partition cannot continue; sarama then ends the session, and [GroupHandler.Err] returns the
// reason.
func (h *GroupHandler) ConsumeClaim(
	sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	h.mu.Lock()
	s := h.sessions[sess]
	h.mu.Unlock()
	if s == nil {
		return errors.New("consumer: ConsumeClaim without Setup")
	}
	h.proc.Assigned(claim.Topic(), claim.Partition())
	l := lane.New(h.proc, claim.Topic(), claim.Partition(),
		lane.Config{
			Lanes: h.cfg.Lanes, OwnProgress: true,
			QueueBytes: queueShare(h.cfg.QueueBytes, sess.Claims()),
		})
	a := s.begin(claim, l)
	defer a.giveUp(nil)
	pump(a.ctx, claim, l, a.times, h.proc.Due)
	return s.end(a, h.endOf(sess.Context()))
}

// Err returns why consuming cannot continue, such as [idem.ErrNoProducer] or too many handlers that
// hang. Consume fails with this error from then on. Err is nil as long as the consumer works.
func (h *GroupHandler) Err() error { return h.reasons.Err() }

// NoteError takes an error from sarama's ConsumerGroup.Errors, so that observers and the log get
// failing commits: sarama returns no error from a commit. A [Consumer] does this itself.
func (h *GroupHandler) NoteError(err error) {
	if err != nil {
		h.health.note(err)
	}
}

// UseClient lets the handler ask the brokers for the ends of logs, which sarama does not pass to a
// handler. Call UseClient before the first Consume, with the client of the group or another client
// of the same cluster. Close the client after [GroupHandler.Close].
//
// Without a client a partition never counts as caught up. The consumed time of the partition is
// then that of the last record. So a store in consumed time keeps all records of the scope while
// one partition is idle.
func (h *GroupHandler) UseClient(client sarama.Client) {
	h.ownEnds = newEnds(client)
	h.ends = h.ownEnds
}

// warnWithoutClient logs once that a store will keep all records.
func (h *GroupHandler) warnWithoutClient(s *session) {
	if s.recorder == nil || s.ends != nil || h.warned.Swap(true) {
		return
	}
	h.log.Warn("ends of logs not known: the store keeps all records while a partition is idle, "+
		"call UseClient", "group", h.cfg.Group)
}

// Close ends the handler. Call Close after the group is closed. An error that matches
// [idem.ErrAbandoned] means that handlers still hang.
func (h *GroupHandler) Close() error {
	h.running.Wait()
	h.ownEnds.close()
	return h.proc.Close()
}

// endSession ends all sessions in order, so that Consume returns.
func (h *GroupHandler) endSession(cause error) {
	h.noteEnding(cause)
	for _, a := range h.claims() {
		a.giveUp(cause)
	}
}

// joined reports whether there is a session.
func (h *GroupHandler) joined() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sessions) > 0
}

// released reports whether all assignments have ended and committed.
func (h *GroupHandler) released() bool {
	return !slices.ContainsFunc(h.live(), (*session).unfinished)
}

// claims returns the current assignments.
func (h *GroupHandler) claims() (all []*assignment) {
	for _, s := range h.live() {
		all = append(all, s.list()...)
	}
	return all
}

func (h *GroupHandler) live() []*session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.sessions))
}
