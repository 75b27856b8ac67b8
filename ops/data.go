package ops

import (
	"cmp"
	"context"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

// This file has the data that pages show, and the interfaces of the sources that return it.

// eventQuery is the search for an event.
type eventQuery struct {
	ID                          string
	Type, Tenant, Source, Topic string // optional
}

// eventFinder looks for an event in the stores, and for the dead letters in Kafka.
type eventFinder interface {
	find(context.Context, eventQuery) (eventAnswer, error)
	deadLettersOf(context.Context, eventQuery) (eventDeadLetters, error)
}

// eventAnswer has the records of the stores.
type eventAnswer struct {
	Records []eventRecord
	// WhichType reports that a store cannot search without the type.
	WhichType bool
	NotKnown  string // explanation for an empty result
}

// eventRecord is one record of one store.
type eventRecord struct {
	dedup.Record
	Store    string
	Next     string // next step
	Content  string // how copies are compared, and which differed
	Deferred *deferredEvent
	NoRow    bool // deferred without a record
}

// deferredEvent is where an event waits in the queue.
type deferredEvent struct {
	Topic     string
	Partition int32
	Queue     string
	Head      bool
	HeadID    string
	Blocked   bool
	Wait      string
	Others    int // in the queue beside it; -1: not known
}

// eventDeadLetters are dead letters of an event.
type eventDeadLetters struct {
	Scanned     int
	Cut         bool // there are more
	DeadLetters []deadLetterRow
}

// deadLetterRow is a dead letter in a list.
type deadLetterRow struct {
	deadLetterPlace
	Failed           time.Time
	Class            idem.Class
	Tenant, Scope    string
	Type, ID, Origin string
	Attempts         int
	Generation       uint32
	Error            string
	Omitted          bool
	Problem          string // why it is no dead letter

	Verdict, Action, Note string // in a plan
}

// mayBeOf reports whether a dead letter with the ID of key is one of its event. A dead letter
// without identity has no scope, and may be one of each scope.
func (r *deadLetterRow) mayBeOf(key dedup.Key) bool {
	return r.Type == key.Type && r.Tenant == key.Tenant && (r.Scope == "" || r.Scope == key.Scope)
}

// EventLink leads to the look-up of a dead letter's event.
func (r deadLetterRow) EventLink() string {
	return eventLink(dedup.Key{Tenant: r.Tenant, Type: r.Type, ID: r.ID})
}

// Link leads to the dead letter.
func (r deadLetterRow) Link() string { return deadLetterLink(r.deadLetterPlace) }

// Replays reports whether a replay of the row's plan would replay the dead letter of the row.
func (r *deadLetterRow) Replays() bool { return r.Action != "" && r.Action != actionSkip }

// deadLetterFilter chooses dead letters of a dead-letter topic.
type deadLetterFilter struct {
	Topic        string // the dead-letter topic
	Type, Class  string
	ID           string
	Since, Until time.Time
	After        *deadLetterRow // the last one of the page before: its time and place. May be nil
}

// deadLetterPage is the newest dead letters that a filter chooses.
type deadLetterPage struct {
	Rows    []deadLetterRow
	Scanned int
	Size    int64 // records there are
	More    bool  // older ones may match
}

// deadLetterDetail is all of one dead letter.
type deadLetterDetail struct {
	deadLetterRow
	First      time.Time
	Key, Value []byte // nil is not empty
	Headers    []idem.Header
}

// decisions has the decisions of a person about dead letters that are otherwise left alone.
type decisions struct {
	Again, Forgotten bool
	// List reports that several dead letters were chosen at once. Different dead letters of one
	// event are then left alone; a single choice decides between them.
	List bool
}

// deadLetterPlan is the preview of a replay, in the order of the topic.
type deadLetterPlan struct {
	Rows    []deadLetterRow
	Missing []string // retry topics that do not exist
}

// deadLetterBox is the dead letters of the group.
type deadLetterBox interface {
	topics(context.Context) ([]string, error)
	newest(context.Context, deadLetterFilter, int) (deadLetterPage, error)
	get(context.Context, deadLetterPlace) (deadLetterDetail, error)
	// plan asks the stores about dead letters of one dead-letter topic, without a change.
	plan(
		ctx context.Context, topic string, at []deadLetterPlace, d decisions,
	) (deadLetterPlan, error)
	// replay replays the planned dead letters of one dead-letter topic, and reports each. One that is
	// no longer as planned, by [deadLetterRow.sameAs], is left alone.
	replay(
		ctx context.Context, topic string, planned []deadLetterRow, d decisions,
		each func(deadLetterDone),
	) error
}

// deadLetterDone is the result of a replay for one dead letter.
type deadLetterDone struct {
	Row      deadLetterRow // with the present verdict
	Replayed bool
	Changed  bool // it is no longer as planned
	Gone     bool // it is no longer in its topic: Row has the place only
	Err      error
}

// groupState is the state of the group at the brokers.
type groupState struct {
	Members        []groupMember
	MembersProblem string           // why the members are not known
	Partitions     []groupPartition // of the sources, and of the group's own topics for later attempts
	DeadLetters    []deadLetterTopic
	Notes          []string // remarks
}

// lagSum is the lag of a group. The partitions in NotKnown are not in Lag.
type lagSum struct {
	Lag      int64
	NotKnown int
	Problem  string // of the first partition in NotKnown
	Beyond   int    // partitions with a committed offset beyond the end
}

func (g *groupState) lag() (sum lagSum) {
	for i := range g.Partitions {
		p := &g.Partitions[i]
		if p.Problem != "" {
			sum.NotKnown++
			sum.Problem = cmp.Or(sum.Problem, p.Problem)
			continue
		}
		sum.Lag += p.Lag
		if p.Beyond {
			sum.Beyond++
		}
	}
	return sum
}

// deadLetterSum is the number of records in dead-letter topics. The topics in NotKnown are counted
// as far as they are known.
type deadLetterSum struct {
	Records, Ends int64
	NotKnown      []string
	Problem       string // of the first topic in NotKnown
}

func (g *groupState) deadLetters() (sum deadLetterSum) {
	for _, t := range g.DeadLetters {
		sum.Records += t.Records
		sum.Ends += t.Ends
		if t.Problem != "" {
			sum.NotKnown = append(sum.NotKnown, t.Topic)
			sum.Problem = cmp.Or(sum.Problem, t.Problem)
		}
	}
	return sum
}

type groupMember struct {
	Client, Instance string
	Assigned         []memberTopic
}

type memberTopic struct {
	Topic      string
	Partitions []int32
}

type groupPartition struct {
	Topic     string
	Partition int32
	Retry     bool // of one of the group's own topics for later attempts
	Committed *int64
	Begin     int64
	End, Lag  int64
	Member    string // empty without a reader
	Problem   string // why the numbers are not known
	Beyond    bool   // Committed is beyond End
}

// deadLetterTopic has the numbers of those partitions of a topic that are known.
type deadLetterTopic struct {
	Topic   string
	Records int64
	Ends    int64  // sum of the end offsets, which a purge leaves unchanged
	Problem string // why a partition is not known
}

// groupReader asks the brokers.
type groupReader interface {
	read(context.Context) (groupState, error)
}

// storeClaims has the claims of one store with an ended lease.
type storeClaims struct {
	Store   string
	Cannot  bool // this kind of store cannot list
	Records []stuckRecord
	More    bool
}

// stuckRecord is a record with the link to the event.
type stuckRecord struct{ dedup.Record }

// Link leads to the look-up of the event.
func (r stuckRecord) Link() string { return eventLink(r.Key) }

type claimLister interface {
	stuck(context.Context) ([]storeClaims, error)
}

// deferredQueue is the queue of one Kafka key.
type deferredQueue struct {
	Store     string
	Topic     string
	Partition int32
	Name      string // as the store has it
	Length    int
	Wait      time.Duration
	Blocked   bool
	Head      *dedup.Deferred // if it was looked at
}

// KeyText is the Kafka key of a queue.
func (q deferredQueue) KeyText() string { return queueName(q.Name) }

type deferredState struct {
	Queues   []deferredQueue
	Unlisted queueSums // queues that were looked at and are not listed
	More     bool      // partitions or queues were not looked at, or not all partitions are known
	Cannot   []string
}

// queueSums counts queues.
type queueSums struct{ Queues, Events, Blocked int }

func (s *queueSums) count(q *deferredQueue) {
	s.Queues++
	s.Events += q.Length
	if q.Blocked {
		s.Blocked++
	}
}

// sums counts the queues that were looked at.
func (p *deferredState) sums() queueSums {
	all := p.Unlisted
	for i := range p.Queues {
		all.count(&p.Queues[i])
	}
	return all
}

type deferredLister interface {
	list(context.Context) (deferredState, error)
}

// outboxState is the content of an outbox.
type outboxState struct {
	outbox.Backlog
	Parked []outboxRow
}

type outboxRow struct {
	Seq              int64
	Topic, Key       string
	Type, ID, Reason string
	At               time.Time
	Behind           int64
}

type outboxReader interface {
	read(context.Context) (outboxState, error)
}
