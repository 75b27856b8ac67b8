package kgoidem

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lane"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

const (
	// joinWait is how long leaving the group may wait for franz-go, which may be in a request to
	// join: the answer comes when all members have given back their partitions. Then the
	// connections are cut.
	joinWait = time.Second
	// leaveWait bounds how long leaving the group may take after that. Then the brokers notice by
	// the session's time-out.
	leaveWait = 3 * time.Second
)

// member is one membership in the group: one client of franz-go, from joining to leaving.
//
// One goroutine polls and never waits for a handler. franz-go calls joined, given back and lost in
// another goroutine, one after the other, while the polling goes on.
type member struct {
	r     *Runner
	cl    *kgo.Client   // for franz-go's callbacks only after ready
	ready chan struct{} // closed when cl is set
	cut   func()        // ends all requests of cl
	gate  gate
	turn  chan struct{}           // has room for the one goroutine that commits
	ctx   context.Context         // ends when the member leaves, with the reason as cause
	leave context.CancelCauseFunc // the first cause counts

	mu       sync.Mutex
	inGroup  bool
	closed   bool // no assignment begins any more
	assigned map[partition]*assignment
}

func newMember(ctx context.Context, r *Runner) *member {
	m := &member{
		r: r, ready: make(chan struct{}), turn: make(chan struct{}, 1),
		assigned: make(map[partition]*assignment),
	}
	m.ctx, m.leave = context.WithCancelCause(ctx)
	return m
}

// join connects.
func (m *member) join(topics []string) error {
	connected, cut := context.WithCancel(context.Background())
	m.cut = cut
	opts := slices.Concat(m.r.cfg.consuming(topics), m.r.cfg.client.Options, []kgo.Opt{
		kgo.AdjustFetchOffsetsFn(m.begin),
		kgo.OnPartitionsAssigned(m.joined),
		kgo.OnPartitionsRevoked(m.revoked),
		kgo.OnPartitionsLost(m.lostAll),
		kgo.WithContext(connected),
	})
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
	var owned sync.WaitGroup
	stop := make(chan struct{})
	owned.Go(func() { m.commitLoop(stop) })
	owned.Go(func() { m.watchStalls(stop) })
	owned.Go(func() { m.watchSilence(stop) })
	owned.Go(func() { m.recordLoop(stop) })
	owned.Go(func() {
		m.r.watching().Run(m.ctx, func(cause error) { m.leave(&comeBack{cause}) })
	})
	m.poll()
	m.stop()
	close(stop)
	owned.Wait()
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
	fetches.EachError(func(topic string, id int32, err error) { m.fetchError(partition{Topic: topic, Partition: id}, err) })
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		m.mu.Lock()
		a := m.assigned[partition{Topic: p.Topic, Partition: p.Partition}]
		m.mu.Unlock()
		if a != nil { // else the partition was given back meanwhile
			a.add(p.Records)
		}
	})
	if !fetches.Empty() && fetches.Err0() == nil {
		m.r.retry.Over()
	}
}

// fetchError acts on an error of fetching. franz-go repeats what a retry mends, without an error
// here.
func (m *member) fetchError(p partition, err error) {
	var loss *kgo.ErrDataLoss
	var session *kgo.ErrGroupSession
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, kgo.ErrClientClosed):
	case errors.As(err, &loss):
		m.dataLoss(loss)
	case errors.As(err, &session):
		if end := m.r.retry.Fatal(err); end != nil {
			m.r.fail(end)
			m.leave(end)
			return
		}
		m.r.retry.Begin(err)
	case isAny(err, kerr.OffsetOutOfRange):
		// The next membership finds the gap.
		m.r.log.Warn("the log no longer has the next record, joining the group anew",
			"topic", p.Topic, "partition", p.Partition)
		m.leave(&comeBack{fmt.Errorf("%s/%d: %w", p.Topic, p.Partition, err)})
	case p.Topic == "": // the brokers cannot be reached
		m.r.retry.Begin(err)
	default:
		if end := m.r.retry.Fatal(err); end != nil {
			m.r.fail(end)
			m.leave(end)
			return
		}
		m.r.retry.Begin(err)
		if classify(err) == runner.DeniedTopic {
			m.r.topics.Suspect() // the other topics go on
			return
		}
		m.leave(&comeBack{fmt.Errorf("%s/%d: %w", p.Topic, p.Partition, err)})
	}
}

// dataLoss acts on a log that was cut: records that were fetched are gone, and others have taken
// their offsets. No policy can keep the order, so franz-go's jump back is a gap too.
func (m *member) dataLoss(loss *kgo.ErrDataLoss) {
	gap := &runner.GapError{
		Topic: loss.Topic, Partition: loss.Partition,
		Committed: loss.ConsumedTo, Oldest: loss.ResetTo, Newest: loss.ResetTo,
	}
	m.r.reportGap(gap)
	if m.r.cfg.OnGap == runner.FailOnGap {
		m.r.fail(gap)
		m.leave(gap)
		return
	}
	m.mu.Lock()
	a := m.assigned[partition{Topic: loss.Topic, Partition: loss.Partition}]
	m.mu.Unlock()
	if a != nil {
		a.cut(loss.ResetTo)
	}
	m.leave(&comeBack{gap})
}

// joined notes that the member is in the group. franz-go calls it at the beginning of each session,
// before [member.begin].
func (m *member) joined(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	<-m.ready
	m.mu.Lock()
	m.inGroup = true
	m.mu.Unlock()
	if len(added) == 0 {
		m.r.retry.Serving()
	}
}

// begin decides where new partitions begin, and begins their assignments. franz-go calls it before
// it fetches them. An error ends the session, and the member joins again.
func (m *member) begin(
	ctx context.Context, fetched map[string]map[int32]kgo.Offset,
) (map[string]map[int32]kgo.Offset, error) {
	<-m.ready
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
	places, err := m.r.places(ctx, claims, committed)
	if err != nil {
		if end := m.r.retry.Fatal(err); end != nil {
			m.r.fail(end)
			m.leave(end)
		}
		return nil, err
	}
	m.r.retry.Serving()
	m.start(places)
	for p, at := range places {
		o := fetched[p.Topic][p.Partition]
		if o.EpochOffset().Offset != at.offset {
			o = kgo.NewOffset().At(at.offset).WithEpoch(-1)
		}
		fetched[p.Topic][p.Partition] = o
	}
	return fetched, nil
}

// both returns a context that ends with ctx or with the membership.
func (m *member) both(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(m.ctx, func() { cancel(context.Cause(m.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// start begins assignments. After the end of the membership it begins none.
func (m *member) start(places map[partition]place) {
	var before []*assignment // franz-go began them and gave up before it fetched
	m.mu.Lock()
	share := queueShare(m.r.cfg.QueueBytes, len(m.assigned)+len(places))
	for p := range places {
		if a := m.assigned[p]; a != nil {
			before = append(before, a)
		}
	}
	m.mu.Unlock()
	m.giveBack(before, nil)
	begun := make(map[string][]int32)
	for p, at := range places {
		m.r.proc.Assigned(p.Topic, p.Partition)
		l := lane.New(m.r.proc, p.Topic, p.Partition, lane.Config{
			Lanes: m.r.cfg.Lanes, OwnProgress: true, QueueBytes: share,
		})
		a := newAssignment(context.WithoutCancel(m.ctx), p, at, l)
		a.due, a.limit = m.r.proc.Due, share
		one := map[string][]int32{p.Topic: {p.Partition}}
		a.flow = func(paused bool) {
			if paused {
				m.cl.PauseFetchPartitions(one)
			} else {
				m.cl.ResumeFetchPartitions(one)
			}
		}
		m.cl.ResumeFetchPartitions(one) // an earlier assignment may have paused it
		if !m.add(a) {
			_ = l.Close(context.Background(), nil) // it has no message
			continue
		}
		begun[p.Topic] = append(begun[p.Topic], p.Partition)
	}
	if len(begun) > 0 {
		m.reportRebalance(observe.Assigned, begun, nil)
	}
}

// add starts the feeder of an assignment. The result is false after the end of the membership.
func (m *member) add(a *assignment) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.assigned[a.partition] = a
	go m.feed(a)
	return true
}

// feed ends with the assignment, whose end waits for it.
func (m *member) feed(a *assignment) {
	defer close(a.fed)
	a.feed()
	if err := a.lane.Err(); err != nil {
		m.r.log.Error("partition cannot continue", "topic", a.Topic, "partition", a.Partition,
			"error", m.r.cfg.Text(err))
		m.r.fail(err)
		m.leave(err)
	}
}

// minQueueShare is the least share of a partition in Config.QueueBytes: room for some dozens of
// small events, so that lanes and batches are of use.
const minQueueShare = 64 << 10

// queueShare divides total among the assigned partitions. Half of a share is the lane's, and half
// waits in front of it.
func queueShare(total, partitions int) int {
	return max(total/max(partitions, 1)/2, minQueueShare)
}

// revoked gives partitions back, after their last commit. franz-go calls it before it tells the
// group, and at the end of each session, mostly without partitions.
func (m *member) revoked(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	<-m.ready
	m.giveBack(m.those(partitions), nil)
	if m.r.cfg.client.Protocol == Eager {
		m.mu.Lock()
		m.inGroup = false
		m.mu.Unlock()
	}
}

// lostAll ends the assignments of partitions that another member may have already (K-11).
func (m *member) lostAll(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	<-m.ready
	m.mu.Lock()
	m.inGroup = false
	m.mu.Unlock()
	m.giveBack(m.those(partitions), fmt.Errorf("%w: the member is no longer in the group",
		idem.ErrPartitionLost))
}

func (m *member) those(partitions map[string][]int32) (some []*assignment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for topic, ids := range partitions {
		for _, id := range ids {
			if a := m.assigned[partition{Topic: topic, Partition: id}]; a != nil {
				some = append(some, a)
			}
		}
	}
	return some
}

func (m *member) list() []*assignment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.assigned))
}

// giveBack ends assignments, commits and reports. It returns when this is done, also if another
// caller does it. lost is nil if the group still waits for this member.
func (m *member) giveBack(list []*assignment, lost error) {
	if len(list) == 0 {
		return
	}
	var ending sync.WaitGroup
	for _, a := range list {
		if lost != nil {
			a.lose()
		}
		ending.Go(func() { a.end(func() { m.endLane(a, lost) }) })
	}
	ending.Wait()
	kept := slices.DeleteFunc(slices.Clone(list), (*assignment).isLost)
	m.commitAtEnd(kept)
	m.recordLast(kept)
	m.forget(list, lost)
}

// endLane ends the handlers of an assignment.
func (m *member) endLane(a *assignment, lost error) {
	cause := lost
	m.mu.Lock()
	if cause == nil && a.stuck { // no grace, although the settled offsets are committed
		cause = fmt.Errorf("%w: %w", idem.ErrPartitionLost, runner.ErrStalled)
	}
	m.mu.Unlock()
	a.giveUp(cause)
	ctx, cancel := context.WithTimeout(context.Background(), m.r.cfg.EndWait())
	defer cancel()
	if left := a.lane.Close(ctx, cause); left != nil {
		m.r.log.Error("handler left behind, partition given back", "topic", a.Topic,
			"partition", a.Partition, "error", m.r.cfg.Text(left))
		m.r.noteAbandoned(left)
	}
	<-a.fed
}

// forget removes assignments that have ended.
func (m *member) forget(list []*assignment, lost error) {
	ended := make(map[string][]int32)
	for _, a := range list {
		m.mu.Lock()
		mine := m.assigned[a.partition] == a
		if mine {
			delete(m.assigned, a.partition)
		}
		stalls := a.stalls
		m.mu.Unlock()
		if !mine {
			continue
		}
		ended[a.Topic] = append(ended[a.Topic], a.Partition)
		if stalls {
			m.reportStall(a, 0, true)
		}
		m.reportProgress(a, true)
	}
	kind := observe.Revoked
	if lost != nil {
		kind = observe.Lost
	}
	if len(ended) > 0 {
		m.reportRebalance(kind, ended, lost)
	}
}

// stop ends the membership: the handlers, the last commit, then the group.
func (m *member) stop() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	list := m.list()
	if errors.Is(context.Cause(m.ctx), idem.ErrStopping) {
		m.r.log.Info("consumer stops: no new handler begins, running handlers have the grace",
			"grace", m.r.cfg.Grace)
	}
	m.giveBack(list, nil)
	m.leaveGroup()
	m.cut()
	m.cl.Close()
}

// leaveGroup gives up the membership. A static member stays in the group, so that a restart moves no
// partition, unless a partition does not move.
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
	if m.r.cfg.client.Protocol == NextGeneration {
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
