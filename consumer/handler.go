package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
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
// The handler pauses the fetching of a partition while its queue is full, or while copies wait.
// When the handler resumes the fetching, a pause that the program has set meanwhile ends too.
//
// When a partition is revoked or the context of Consume ends, no new handler begins and running
// handlers have the grace. The offsets are committed before the partition is given back. When the
// session was lost, handlers are cancelled at once and no offset is committed.
type GroupHandler struct {
	cfg    Config
	g      *runner.Group
	delays []time.Duration // of retry topics

	// prepare, if not nil, runs at the start of a session, before any assignment begins. It returns
	// the claims that it has prepared. An error ends the session.
	prepare func(sarama.ConsumerGroupSession) (map[string][]int32, error)
	// added, if not nil, reports whether a partition without a committed offset may begin that was
	// not prepared at the start of the session. If not, the next session prepares it.
	added   func(context.Context, sarama.ConsumerGroupClaim) bool
	direct  *directCommits // nil: no commits beside sarama
	ownEnds *ends          // of UseClient
	warned  atomic.Bool

	mu       sync.Mutex
	sessions map[sarama.ConsumerGroupSession]prepared
}

// prepared is a session with the claims that are prepared.
type prepared struct {
	*runner.ActiveSession
	claims map[string][]int32
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
	g, err := runner.NewGroup(cfg.neutral(), r, classOf)
	if err != nil {
		return nil, err
	}
	return &GroupHandler{
		cfg: cfg, g: g, delays: g.Processor().RetryDelays(),
		sessions: make(map[sarama.ConsumerGroupSession]prepared),
	}, nil
}

// Topics returns the topics to subscribe to for the events of sources. These are the sources, a
// retry topic of each source for each delay that a handler declares, and one for replays
// ([deadletter.RetryTopic]). Pass all topics to every Consume of the group. A [Consumer] does this
// itself.
//
// sarama consumes no topic while one of them does not exist. Create them all, or leave out the
// topics for replays: then dead letters cannot be replayed.
//
// Begin at the oldest record where no offset is committed. With sarama.OffsetNewest, copies that
// are written before the first assignment never run. Records that are written before the first
// commit of a partition may never run either: sarama begins at a later end after a restart.
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
	return h.g.Processor().Register(ctx, r)
}

// Setup begins a session. sarama calls it.
func (h *GroupHandler) Setup(sess sarama.ConsumerGroupSession) error {
	if err := h.Err(); err != nil {
		return err
	}
	claims := sess.Claims()
	ready := claims
	if h.prepare != nil {
		var err error
		if ready, err = h.prepare(sess); err != nil {
			return err
		}
	}
	h.warnWithoutClient()
	s := h.g.Begin(neutralSession(sess, h.direct), claims)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sessions[sess] = prepared{s, ready}
	return nil
}

// Cleanup ends a session, after its assignments. sarama calls it.
func (h *GroupHandler) Cleanup(sess sarama.ConsumerGroupSession) error {
	h.mu.Lock()
	s := h.sessions[sess].ActiveSession // nil if Setup failed
	delete(h.sessions, sess)
	h.mu.Unlock()
	h.g.End(s, context.Cause(sess.Context()))
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
	if s.ActiveSession == nil {
		return errors.New("consumer: ConsumeClaim without Setup")
	}
	if !h.mayBegin(sess.Context(), s.claims, claim) {
		h.g.EndSessions(errNotPrepared)
		return nil // sarama ends the session
	}
	assigned := 0
	for _, ids := range sess.Claims() {
		assigned += len(ids)
	}
	feed := runner.Feed[*sarama.ConsumerMessage]{
		Records: claim.Messages(), Message: new(converter).message,
	}
	return runner.Consume(s.ActiveSession, claim, feed, assigned)
}

// errNotPrepared ends a session so that the next one prepares a partition.
var errNotPrepared = errors.New("a partition without a committed offset was not prepared")

// mayBegin reports whether a claim may begin in this session. A claim that was not prepared was
// added by a rebalance, or had no leader. sarama itself ends a session for an offset that is out of
// range, and the next session finds the gap.
func (h *GroupHandler) mayBegin(
	ctx context.Context, prepared map[string][]int32, claim sarama.ConsumerGroupClaim,
) bool {
	return h.added == nil || claim.InitialOffset() >= 0 ||
		slices.Contains(prepared[claim.Topic()], claim.Partition()) || h.added(ctx, claim)
}

// Err returns why consuming cannot continue, such as [idem.ErrNoProducer] or too many handlers that
// hang. Consume fails with this error from then on. Err is nil as long as the consumer works.
func (h *GroupHandler) Err() error { return h.g.Err() }

// NoteError takes an error from sarama's ConsumerGroup.Errors, so that observers and the log get
// failing commits: sarama returns no error from a commit. A [Consumer] does this itself.
func (h *GroupHandler) NoteError(err error) {
	if !isAny(err, fetchErrors...) {
		h.g.NoteError(err)
	}
}

// fetchErrors come from fetches only, never from commits.
var fetchErrors = []error{
	sarama.ErrOffsetOutOfRange, sarama.ErrConsumerRetriesExhausted,
	sarama.ErrDecompressedBatchTooLarge,
}

// UseClient lets the handler ask the brokers for the ends of logs, which sarama does not pass to a
// handler. Call UseClient before the first Consume, with the client of the group or another client
// of the same cluster. Close the client after [GroupHandler.Close].
//
// Without a client a partition never counts as caught up. The consumed time of the partition is
// then that of the last record. So a store in consumed time keeps all records of the scope while
// one partition is idle.
func (h *GroupHandler) UseClient(client sarama.Client) {
	h.ownEnds = newEnds(client, h.cfg)
	h.g.Hooks.Ends = h.ownEnds
}

// warnWithoutClient logs once that a store will keep all records.
func (h *GroupHandler) warnWithoutClient() {
	if !h.g.RecordsProgress() || h.g.Hooks.Ends != nil || h.warned.Swap(true) {
		return
	}
	h.cfg.Logger.Warn("ends of logs not known: the store keeps all records while a partition is "+
		"idle, call UseClient", "group", h.cfg.Group)
}

// Close ends the handler. Call Close after the group is closed. An error that matches
// [idem.ErrAbandoned] means that handlers still hang.
func (h *GroupHandler) Close() error {
	h.g.Wait()
	h.ownEnds.close()
	return h.g.Close()
}
