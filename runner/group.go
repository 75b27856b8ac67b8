package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lane"
)

// The values of [Claim].InitialOffset without a committed offset, as in Kafka's protocol.
const (
	OffsetNewest = -1 // the assignment begins at the next record to be written
	OffsetOldest = -2 // the assignment begins at the first record in the log
)

// Claim is a partition that this member has at present. A Claim may also be a [Flow] and a
// [ClaimContext]. Safe for concurrent use.
type Claim interface {
	Topic() string
	Partition() int32
	// InitialOffset is the committed offset at the begin, or OffsetOldest or OffsetNewest.
	InitialOffset() int64
	// HighWaterMarkOffset is the end of the log as the fetching knows it. It must advance with
	// every answer, also with one without visible records.
	HighWaterMarkOffset() int64
}

// ClaimContext is a [Claim] that may end, or be lost, before its session.
type ClaimContext interface {
	// Context is derived from the context of the session. Its cause matches idem.ErrPartitionLost
	// if another member may have the partition already.
	Context() context.Context
}

// Session is one membership of a client, with the assignments until the end of its context. Safe
// for concurrent use.
type Session interface {
	// Context ends with the session. Its cause is the reason. The partitions are lost if the cause
	// matches idem.ErrPartitionLost, or if its class is one of a lost membership.
	Context() context.Context
	// Generation is the generation of the group, for reports.
	Generation() int32
	// Mark sets the offset of a partition for the next commit.
	Mark(p TopicPartition, next int64)
	// Commit commits the marks since the last successful commit, if there are any. Commit may block
	// for as long as a request. Errors go to Group.NoteError.
	Commit()
}

// DirectCommitter is a [Session] that can commit offsets beside Commit, with the answer of the
// broker. At the stop of a runner the offsets are then confirmed, see [ErrNotCommitted].
type DirectCommitter interface {
	// CommitDirectly commits offsets and returns the partitions that the coordinator refused. An
	// error means that there was no answer.
	CommitDirectly(
		ctx context.Context, offsets map[TopicPartition]int64,
	) (refused map[TopicPartition]error, err error)
}

// Hooks are the facts that a [Group] needs about its client. Set them before a session begins. The
// zero value of a field leaves it out.
type Hooks struct {
	// OwnsContext is set if the context of a session ends only with the cause idem.ErrStopping, or
	// with the cause of a lost session. A session that was merely cancelled has then lost all
	// partitions: some clients give no other sign in a cooperative rebalance.
	OwnsContext bool
	// Stopping reports whether the runner stops. A client that watches the same context may cancel
	// the session before the cause arrives there. Offsets are confirmed at a stop only.
	Stopping func() bool
	// Oldest returns the first offset in the log. It may ask a broker.
	Oldest func(topic string, partition int32) (int64, error)
	// Committed returns the committed offsets of the group, as [Offsets].Committed does. Stores get
	// the position of a partition that began without a committed offset after Committed has found
	// one. Without Committed they get it after the first commit, which may have failed.
	Committed func(
		ctx context.Context, partitions map[string][]int32,
	) (map[TopicPartition]int64, error)
	// Ends finds the ends of logs. Without Ends no partition counts as caught up.
	Ends EndAsker
}

// Group handles the events of a consumer group on this member: it has settings, processor, reports,
// and the reasons why sessions end. Create a Group with [NewGroup]. Safe for concurrent use.
type Group struct {
	// Hooks are the facts that the group needs about its client.
	Hooks Hooks

	cfg      Config
	proc     *idem.Processor
	log      *slog.Logger
	obs      ownObservers
	health   commitHealth
	busy     *busyNotes
	classify Classify
	reasons

	running sync.WaitGroup // the goroutines of sessions

	mu       sync.Mutex
	sessions map[*ActiveSession]struct{}
}

// NewGroup returns a group. It sets the defaults of cfg and does not validate it. The error lists
// the mistakes of the handlers, or names a store that loses all records with the process.
func NewGroup(cfg Config, r *idem.Router, classify Classify) (*Group, error) {
	cfg = cfg.WithDefaults()
	obs, others := sortObservers(cfg.Observers)
	busy := new(busyNotes)
	if cfg.WhenStalled != ReportStall {
		others = append(others, busy)
	}
	proc, err := newProcessor(cfg, r, others)
	if err != nil {
		return nil, err
	}
	return &Group{
		cfg: cfg, proc: proc, log: cfg.Logger, obs: obs, busy: busy, classify: classify,
		health: commitHealth{
			log: cfg.Logger, text: cfg.Text, group: cfg.Group, observers: obs.Commit,
		},
		sessions: make(map[*ActiveSession]struct{}),
	}, nil
}

// Processor returns the processor of the events.
func (g *Group) Processor() *idem.Processor { return g.proc }

// Topics names the topics of the group, with the delays that handlers declare.
func (g *Group) Topics() GroupTopics {
	return GroupTopics{Group: g.cfg.Group, Delays: g.proc.RetryDelays()}
}

// RecordsProgress reports whether a store records the progress of partitions.
func (g *Group) RecordsProgress() bool { return recordsProgress(g.proc.Stores()) }

// NoteError takes an error that may be that of a commit, so that observers and the log get failing
// commits. Leave out errors that are certainly not about a commit.
func (g *Group) NoteError(err error) {
	if err != nil {
		g.health.note(err)
	}
}

// Begin begins a session, with the partitions that are assigned. After Begin, call [Consume] for
// each, and [Group.End].
func (g *Group) Begin(sess Session, claims map[string][]int32) *ActiveSession {
	s := newSession(g, sess)
	g.mu.Lock()
	g.sessions[s] = struct{}{}
	g.mu.Unlock()
	g.noteSession(nil)
	s.Announce(claims)
	g.running.Go(s.commitLoop)
	stalls := &stallWatch{
		s: s, leave: g.EndSessions, policy: g.cfg.WhenStalled, after: g.cfg.StallTimeout,
	}
	g.running.Go(stalls.run)
	if s.recorder != nil {
		g.running.Go(func() { s.recorder.loop(s.stop) })
	}
	return s
}

// End ends a session after the last [Consume] has returned, for this cause. It commits once more. s
// is nil if the session did not begin.
func (g *Group) End(s *ActiveSession, cause error) {
	g.mu.Lock()
	delete(g.sessions, s)
	g.mu.Unlock()
	g.noteSession(cause)
	if s != nil {
		s.close(cause)
	}
}

// Consume handles the records of one claim. Consume ends when the records end, when the context of
// the claim or of the session ends, or when the partition cannot continue. assigned is the number
// of partitions of this member, which share [Config].QueueBytes.
//
// Consume returns after the handlers have ended and, unless the partition is lost, the last offset
// is committed. An error means that the partition cannot continue: end the session, then
// [Group.Err] returns the reason.
func Consume[R any](s *ActiveSession, claim Claim, feed Feed[R], assigned int) error {
	g := s.g
	g.proc.Assigned(claim.Topic(), claim.Partition())
	l := lane.New(g.proc, claim.Topic(), claim.Partition(), lane.Config{
		Lanes: g.cfg.Lanes, OwnProgress: true, QueueBytes: queueShare(g.cfg.QueueBytes, assigned),
	})
	a := s.begin(claim, l, assigned)
	defer a.giveUp(nil)
	// The subscription of a session that the member was joining may be old.
	if ending := g.ownEnding(); errors.Is(ending, ErrTopicBack) {
		a.giveUp(ending)
	}
	s.commitBeginning(a)
	pump(a, feed, g.proc.Due)
	lost := a.lost()
	if lost == nil {
		lost = g.endOf(s.sess.Context())
	}
	return s.end(a, lost)
}

// EndSessions ends all sessions in order, for this cause: every [Consume] returns. After
// [ErrTopicBack] a [Consume] that begins before [Group.TakeEnding] returns at once too. So a session
// that the member is joining ends as well.
func (g *Group) EndSessions(cause error) {
	g.noteEnding(cause)
	for _, a := range g.Assignments() {
		a.giveUp(cause)
	}
}

// Joined reports whether there is a session.
func (g *Group) Joined() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.sessions) > 0
}

// Released reports whether all assignments have ended and committed.
func (g *Group) Released() bool {
	return !slices.ContainsFunc(g.live(), (*ActiveSession).unfinished)
}

// Assignments returns the current assignments.
func (g *Group) Assignments() (all []*Assignment) {
	for _, s := range g.live() {
		all = append(all, s.Assignments()...)
	}
	return all
}

func (g *Group) live() []*ActiveSession {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.sessions))
}

// Wait waits for the goroutines of sessions that have ended.
func (g *Group) Wait() { g.running.Wait() }

// Close ends the group after its sessions. An error that matches [idem.ErrAbandoned] means that
// handlers still hang.
func (g *Group) Close() error {
	g.Wait()
	return g.proc.Close()
}

func (g *Group) stops() bool { return g.Hooks.Stopping != nil && g.Hooks.Stopping() }

// endOf returns nil if the assignments of a session with this context end in order. If another
// member may have them already, the error matches idem.ErrPartitionLost.
func (g *Group) endOf(ctx context.Context) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil: // only this assignment ends: by a cooperative revoke, or a failing fetch
		return nil
	case errors.Is(cause, idem.ErrPartitionLost):
		return cause
	case g.classify(cause).Lost(),
		g.Hooks.OwnsContext && errors.Is(cause, context.Canceled) &&
			!errors.Is(cause, idem.ErrStopping) && !g.stops():
		return fmt.Errorf("%w: %w", idem.ErrPartitionLost, cause)
	}
	return nil
}

// excused reports whether a partition may rest for a reason that is no stall.
func (g *Group) excused(p TopicPartition) bool {
	if g.cfg.WhenStalled == ReportStall {
		return false
	}
	status := g.proc.Status()
	return len(status.Down)+len(status.OpenBreakers) > 0 || g.busy.recently(p.Topic, p.Partition, g.cfg.Group)
}
