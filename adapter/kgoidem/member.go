package kgoidem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

const (
	// joinWait is how long leaving the group may wait for franz-go. The client may be in a request
	// to join, with an answer after all members have given back their partitions. After joinWait
	// the connections are cut.
	joinWait = time.Second
	// leaveWait bounds how long leaving the group may take after that. Then the brokers notice by
	// the session's time-out.
	leaveWait = 3 * time.Second
)

// member is one membership in the group: one client of franz-go, from joining to leaving.
//
// One goroutine polls and never waits for a handler. franz-go calls joined, begin, revoked and
// lostAll in another goroutine, one after the other, while the polling goes on.
type member struct {
	r     *Runner
	cl    *kgo.Client   // for franz-go's callbacks only after ready
	ready chan struct{} // closed when cl is set
	cut   func()        // ends all requests of cl
	gate  gate
	ctx   context.Context         // ends when the member leaves, with the reason as cause
	leave context.CancelCauseFunc // the first cause counts

	stamps map[string]bool // of the offsets that were fetched last

	running sync.WaitGroup // the claims
	passing sync.Mutex     // held while a session begins or ends

	mu      sync.Mutex
	closed  bool     // no claim begins any more
	session *session // nil while the member is not in the group
	claims  map[partition]*claim
}

func newMember(ctx context.Context, r *Runner) *member {
	m := &member{r: r, ready: make(chan struct{}), claims: make(map[partition]*claim)}
	m.ctx, m.leave = context.WithCancelCause(ctx)
	return m
}

// join connects.
func (m *member) join(topics []string) error {
	connected, cut := context.WithCancel(context.Background())
	m.cut = cut
	opts := slices.Concat(m.r.cfg.consuming(topics), m.r.cfg.client.Options, []kgo.Opt{
		kgo.OnOffsetsFetched(m.stamped),
		kgo.AdjustFetchOffsetsFn(m.begin),
		kgo.OnPartitionsAssigned(m.joined),
		kgo.OnPartitionsRevoked(m.revoked),
		kgo.OnPartitionsLost(m.lostAll),
		kgo.WithContext(connected),
	})
	if m.r.cfg.client.Protocol == NextGeneration {
		opts = append(opts, kgo.WithHooks(classicWatch{m}))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		cut()
		return fmt.Errorf("franz-go: %w", err)
	}
	m.cl = cl
	close(m.ready)
	return nil
}

// run is a member until ctx ends or there is a reason to leave, and returns that reason.
func (m *member) run() error {
	watched := m.r.life.Watch(m.ctx, m.leave)
	m.poll()
	m.stop()
	watched()
	return context.Cause(m.ctx)
}

// poll moves fetched records to their assignments until the member leaves.
func (m *member) poll() {
	for m.ctx.Err() == nil {
		fetches := m.cl.PollFetches(m.gate.enter(m.ctx))
		if m.ctx.Err() == nil {
			m.take(fetches)
		}
		m.gate.leave()
	}
}

func (m *member) take(fetches kgo.Fetches) {
	fetches.EachError(func(topic string, id int32, err error) {
		m.fetchError(partition{Topic: topic, Partition: id}, err)
	})
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		c := m.claim(partition{Topic: p.Topic, Partition: p.Partition})
		if c != nil { // nil: the partition was given back meanwhile
			c.add(p.Records)
		}
	})
	if !fetches.Empty() && fetches.Err0() == nil {
		m.r.life.Retry.Over()
	}
}

// claim returns the claim of a partition, or nil.
func (m *member) claim(p partition) *claim {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.claims[p]
}

// tooLargeAdvice follows the error of a batch above the limit. Such a batch disturbs no other
// partition. The watch for silent partitions joins the group again, for a batch that is gone then.
const tooLargeAdvice = "the partition waits, the others go on: raise kgo.MaxDecompressBatchBytes in " +
	"Options, or stop the group and reset its offset to the end of the batch, whose events are then " +
	"not handled"

// fetchError acts on an error of fetching. Before such an error, franz-go itself has retried where
// a retry can help.
func (m *member) fetchError(p partition, err error) {
	var loss *kgo.ErrDataLoss
	var session *kgo.ErrGroupSession
	var large *kgo.ErrDecompressTooLarge
	if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
		return
	}
	if errors.As(err, &loss) {
		m.dataLoss(loss)
		return
	}
	if errors.As(err, &large) { // franz-go has stopped this partition (G-01)
		m.r.life.Retry.Detail(fmt.Errorf("%w; %s", err, tooLargeAdvice),
			"topic", p.Topic, "partition", p.Partition)
		return
	}
	if end := m.r.life.Retry.Fatal(err); end != nil {
		m.r.group.Fail(end)
		m.leave(end)
		return
	}
	switch {
	case isAny(err, kerr.OffsetOutOfRange):
		// The next membership finds the gap.
		m.r.log.Warn("the log no longer has the next record, joining the group anew",
			"topic", p.Topic, "partition", p.Partition)
		m.leave(&runner.ComeBack{Why: fmt.Errorf("%s: %w", p, err)})
	case errors.As(err, &session), p.Topic == "": // franz-go joins again, or connects again
		m.r.life.Retry.Begin(err)
	case classify(err) == runner.DeniedTopic:
		m.r.life.Retry.Begin(err)
		m.r.life.Topics.Suspect() // the other topics go on
	default:
		m.r.life.Retry.Begin(err)
		m.leave(&runner.ComeBack{Why: fmt.Errorf("%s: %w", p, err)})
	}
}

// dataLoss acts on a log that was cut: records that were fetched are gone, and others have taken
// their offsets. No policy can keep the order, so franz-go's jump back is a gap too.
func (m *member) dataLoss(loss *kgo.ErrDataLoss) {
	gap := &runner.GapError{
		Topic: loss.Topic, Partition: loss.Partition,
		Committed: loss.ConsumedTo, Oldest: loss.ResetTo, Newest: loss.ResetTo, Cut: true,
	}
	policy := m.r.cfg.GapPolicyOf(gap.Topic)
	m.r.reportCut(gap, policy)
	if policy == runner.FailOnGap {
		m.r.group.Fail(gap)
		m.leave(gap)
		return
	}
	m.mu.Lock()
	s := m.session
	m.mu.Unlock()
	p := partition{Topic: loss.Topic, Partition: loss.Partition}
	switch {
	case s == nil:
	case policy == runner.EarliestOnGap:
		s.cut(p, loss.ResetTo)
	default:
		s.passOver(p)
	}
	m.leave(&runner.ComeBack{Why: gap})
}

// reportCut reports a cut that franz-go found, and the policy that is applied.
func (r *Runner) reportCut(gap *runner.GapError, policy runner.GapPolicy) {
	r.log.Error("the log was cut below the next record",
		"topic", gap.Topic, "partition", gap.Partition, "next", gap.Committed,
		"cut_at", gap.Newest, "policy", policy.String())
	for _, o := range r.gaps {
		o.ObserveGap(context.Background(), observe.GapEvent{
			Group: r.cfg.Group, Topic: gap.Topic, Partition: gap.Partition,
			Committed: gap.Committed, Oldest: gap.Oldest, Newest: gap.Newest, Cut: gap.Cut,
			Policy: policy.String(),
		})
	}
}

// joined begins the session of a member without partitions. franz-go calls it at the beginning of
// each generation, before [member.begin].
func (m *member) joined(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	<-m.ready
	if len(added) == 0 {
		m.r.life.Retry.Serving()
		m.enter(nil)
	}
}

// enter begins a session with partitions, or adds them to the running one. The result is nil after
// the end of the membership.
func (m *member) enter(partitions map[string][]int32) *session {
	m.passing.Lock()
	defer m.passing.Unlock()
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	s, begins := m.session, m.session == nil
	if begins {
		s = newSession(m)
		m.session = s
	}
	m.mu.Unlock()
	switch {
	case begins:
		s.on = m.r.group.Begin(s, partitions)
	case len(partitions) > 0:
		s.on.Announce(partitions)
	}
	return s
}

// exit ends the session, after its claims.
func (m *member) exit(cause error) {
	m.passing.Lock()
	defer m.passing.Unlock()
	m.mu.Lock()
	s := m.session
	m.session = nil
	m.mu.Unlock()
	if s != nil {
		s.end(cause)
		m.r.group.End(s.on, cause)
	}
}

// begin decides where new partitions begin, and begins their assignments. franz-go calls it before
// it fetches them, and sends heartbeats beside it.
//
// An error would end the session with all partitions, also those that run. So begin returns an
// error only after franz-go has ended ctx, for a rebalance or to leave the group. Until then the
// other partitions run on, and running handlers have their grace.
func (m *member) begin(
	ctx context.Context, fetched map[string]map[int32]kgo.Offset,
) (map[string]map[int32]kgo.Offset, error) {
	<-m.ready
	places, err := m.places(ctx, fetched)
	if err != nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	m.r.life.Retry.Serving()
	m.start(places)
	for p, at := range places {
		fetched[p.Topic][p.Partition] = m.place(p, fetched[p.Topic][p.Partition], at.Offset)
	}
	return fetched, nil
}

// places decides where new partitions begin, and waits for brokers and stores that are down. After
// an error ctx or the membership has ended.
func (m *member) places(
	ctx context.Context, fetched map[string]map[int32]kgo.Offset,
) (map[partition]runner.Place, error) {
	ctx, cancel := m.both(ctx)
	defer cancel()
	if err := m.gate.pass(ctx); err != nil {
		return nil, err
	}
	committed, claims := make(map[partition]int64), make(map[string][]int32)
	for topic, ids := range fetched {
		for id, o := range ids {
			claims[topic] = append(claims[topic], id)
			if at := o.EpochOffset().Offset; at >= 0 {
				committed[partition{Topic: topic, Partition: id}] = at
			}
		}
	}
	var back runner.Backoff
	for {
		places, err := m.r.life.Places(ctx, claims, committed)
		if err == nil {
			return places, nil
		}
		if err := m.r.life.Retry.Wait(ctx, &back, err); err != nil {
			if ctx.Err() == nil { // no retry can help
				m.r.group.Fail(err)
				m.leave(err)
			}
			return nil, err
		}
	}
}

// both returns a context that ends with ctx or with the membership.
func (m *member) both(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(m.ctx, func() { cancel(context.Cause(m.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// start begins claims, unless the membership has ended.
func (m *member) start(places map[partition]runner.Place) {
	begun := make(map[string][]int32)
	var before []*claim // franz-go began them and gave up before it fetched
	for p := range places {
		begun[p.Topic] = append(begun[p.Topic], p.Partition)
		if c := m.claim(p); c != nil {
			before = append(before, c)
		}
	}
	m.giveBack(before, errRevoked)
	s := m.enter(begun)
	if s == nil {
		return
	}
	for p, at := range places {
		c := newClaim(s.ctx, m.cl, p, at)
		c.Resume() // an earlier claim may have paused it
		s.begins(p, at, c.epochs)
		m.consume(s, c, len(places))
	}
}

// consume runs a claim in a goroutine of its own, unless the membership has ended.
func (m *member) consume(s *session, c *claim, begun int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.claims[c.At()] = c
	assigned := max(len(m.claims), begun)
	m.running.Go(func() {
		defer close(c.done)
		var convert converter
		feed := runner.Feed[*kgo.Record]{Records: c.records, Message: convert.message}
		err := runner.Consume(s.on, c, feed, assigned)
		m.mu.Lock()
		if m.claims[c.At()] == c {
			delete(m.claims, c.At())
		}
		m.mu.Unlock()
		s.forget(c.At())
		if c.ctx.Err() == nil { // runner has ended it: the partition cannot continue
			m.leave(m.r.group.LeaveReason(err))
		}
	})
}

// giveBack ends claims for this cause, and returns when their assignments have ended and committed.
func (m *member) giveBack(list []*claim, cause error) {
	m.endTogether(list)
	for _, c := range list {
		c.end(cause)
	}
	for _, c := range list {
		<-c.done
	}
}

// endTogether makes one report of the ends of claims. While a session begins or ends there is no
// time to wait, and each claim is reported by itself.
func (m *member) endTogether(list []*claim) {
	if !m.passing.TryLock() {
		return
	}
	defer m.passing.Unlock()
	m.mu.Lock()
	s := m.session
	m.mu.Unlock()
	if s == nil {
		return
	}
	ending := make(map[string][]int32)
	for _, c := range list {
		ending[c.At().Topic] = append(ending[c.At().Topic], c.At().Partition)
	}
	s.on.EndTogether(ending)
}

// revoked gives partitions back, after their last commit. franz-go calls revoked before the request
// to the group, and at the end of each generation, mostly without partitions.
func (m *member) revoked(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	<-m.ready
	m.giveBack(m.those(partitions), errRevoked)
	if m.r.cfg.client.Protocol == Eager {
		m.exit(errRevoked)
	}
}

// lostAll ends the assignments of partitions that another member may have already (K-11).
func (m *member) lostAll(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	<-m.ready
	lost := fmt.Errorf("%w: the member is no longer in the group", idem.ErrPartitionLost)
	m.giveBack(m.those(partitions), lost)
	m.exit(lost)
}

func (m *member) those(partitions map[string][]int32) (some []*claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for topic, ids := range partitions {
		for _, id := range ids {
			if c := m.claims[partition{Topic: topic, Partition: id}]; c != nil {
				some = append(some, c)
			}
		}
	}
	return some
}

// stop ends the membership: the handlers, the last commit, then the group.
func (m *member) stop() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	if errors.Is(context.Cause(m.ctx), idem.ErrStopping) {
		m.r.log.Info("consumer stops: no new handler begins, running handlers have the grace",
			"grace", m.r.cfg.Grace)
	}
	m.running.Wait()
	m.exit(context.Cause(m.ctx))
	m.leaveGroup()
	m.cut()
	m.cl.Close()
}

// leaveGroup gives up the membership. A static member stays in the group, so that a restart moves
// no partition, unless a partition does not move.
func (m *member) leaveGroup() {
	if m.r.cfg.InstanceID != "" && errors.Is(context.Cause(m.ctx), runner.ErrStalled) {
		m.removeStatic()
	}
	id, _ := m.cl.GroupMetadata()
	wait, cancel := context.WithTimeout(context.Background(), joinWait)
	defer cancel()
	err := m.cl.LeaveGroupContext(wait)
	if err != nil && m.r.cfg.InstanceID == "" && id != "" {
		m.cut()
		err = m.leaveBeside(id)
	}
	if err != nil {
		m.r.log.Warn("leaving the group failed, its partitions rest until the session times out",
			"error", m.r.cfg.Text(err))
	}
}

// leaveBeside leaves the group on another connection.
func (m *member) leaveBeside(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), leaveWait)
	defer cancel()
	refused := errors.Is(context.Cause(m.ctx), errRefused)
	if m.r.cfg.client.Protocol == NextGeneration && !refused {
		const leaving = -1 // as the epoch of the member
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch = m.r.cfg.Group, id, leaving
		answer, err := req.RequestWith(ctx, m.r.plain)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(answer.ErrorCode)
	}
	req, who := kmsg.NewPtrLeaveGroupRequest(), kmsg.NewLeaveGroupRequestMember()
	who.MemberID = id
	req.Group, req.MemberID, req.Members = m.r.cfg.Group, id, append(req.Members, who)
	answer, err := req.RequestWith(ctx, m.r.plain)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.ErrorCode)
}

// removeStatic removes a static member from the group, which leaving does not.
func (m *member) removeStatic() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveWait)
	defer cancel()
	_, err := kadm.NewClient(m.r.plain).LeaveGroup(ctx, kadm.LeaveGroup(m.r.cfg.Group).
		InstanceIDs(m.r.cfg.InstanceID).Reason("a partition does not move"))
	if err != nil {
		m.r.log.Warn("removing the static member failed", "error", m.r.cfg.Text(err))
	}
}
