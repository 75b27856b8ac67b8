package idem

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
)

// Option is a setting of a router, a group of handlers ([Router.With]) or one handler; the narrower one wins.
type Option func(*settings)

type settings struct {
	policy
	store       dedup.Store
	scope       string
	name        string
	tenant      IDFunc
	id          IDFunc
	typ         *typeSource
	retention   time.Duration
	timeout     time.Duration
	fingerprint func(*Message) (dedup.Fingerprint, error)
	unchecked   bool // values of copies are not compared
	decode      func(m *Message, into any) error
	ownDecode   bool // decode was set by an option
	tombstones  bool
	pastDead    bool
	ownTx       bool
	sameKey     bool
	maxBatch    int
	concurrency int
	rate        int
	per         time.Duration
	problems    []error
}

// typeSource gives an IDFunc an identity, so that handlers with the same one share a look-up.
type typeSource struct{ find IDFunc }

var standardType = &typeSource{find: StandardType()}

func newSettings(lists ...[]Option) settings {
	s := settings{
		id:        StandardID(),
		typ:       standardType,
		retention: 7 * 24 * time.Hour,
		timeout:   30 * time.Second,
		maxBatch:  DefaultMaxBatch,
		decode:    func(m *Message, into any) error { return json.Unmarshal(m.Value, into) },
	}
	for _, list := range lists {
		for _, o := range list {
			if o == nil {
				s.problems = append(s.problems, errors.New("nil option"))
				continue
			}
			o(&s)
		}
	}
	s.retry = s.retry.withDefaults()
	s.problems = append(s.problems, s.validate()...)
	return s
}

func (s *settings) validate() (problems []error) {
	if err := s.retry.validate(); err != nil {
		problems = append(problems, err)
	}
	if s.id == nil || s.typ.find == nil || s.decode == nil {
		problems = append(problems, errors.New("ID, Type and Decode must not be nil"))
	}
	if s.retention <= 0 {
		problems = append(problems, fmt.Errorf("Retention must be positive, not %s", s.retention))
	}
	if s.timeout <= 0 {
		problems = append(problems, fmt.Errorf("Timeout must be positive, not %s", s.timeout))
	}
	if s.maxBatch < 1 || s.maxBatch > maxMaxBatch {
		problems = append(problems, fmt.Errorf("MaxBatch must be between 1 and %d, not %d", maxMaxBatch, s.maxBatch))
	}
	if s.concurrency < 0 || s.rate < 0 || s.rate > 0 && s.per <= 0 {
		problems = append(problems, errors.New("Concurrency and RateLimit must be positive"))
	}
	if err := checkDelays(s); err != nil {
		problems = append(problems, err)
	}
	return problems
}

// Store makes store remember, instead of [Config].Store: a handler that mails may claim in Redis beside one that books
// in Postgres.
func Store(store dedup.Store) Option { return func(s *settings) { s.store = store } }

// Scope names who remembers; equal IDs in different scopes are different events. Defaults to [Config].Scope, the consumer
// group. Changing it makes every event new again.
func Scope(scope string) Option { return func(s *settings) { s.scope = scope } }

// Name tells this handler from others that send the same event to the same outside API; it goes into
// [Event.IdempotencyKey]. Defaults to the event type.
func Name(name string) Option { return func(s *settings) { s.name = name } }

// Tenant finds the customer whose event it is; IDs of different tenants never meet. Default: all share the empty tenant.
// A message in which it is not found is dead-lettered.
func Tenant(f IDFunc) Option { return func(s *settings) { s.tenant = f } }

// ID finds the identity. Defaults to [StandardID].
func ID(f IDFunc) Option { return func(s *settings) { s.id = f } }

// Type finds the type by which a handler is chosen. Defaults to [StandardType]. For a topic that carries one kind of
// event only, Type([Fixed]("order.created")) saves looking.
func Type(f IDFunc) Option {
	src := &typeSource{find: f}
	return func(s *settings) { s.typ = src }
}

// Retry says how often a failing event is tried again. See [RetryPolicy] for the defaults.
func Retry(p RetryPolicy) Option { return func(s *settings) { s.retry = p } }

// Retention is how long the store remembers a handled event. Defaults to 7 days, as long as Kafka keeps records by default: a
// store that forgets an event before Kafka forgets its last copy handles it twice (K-20).
func Retention(d time.Duration) Option { return func(s *settings) { s.retention = d } }

// Timeout is how long one run of the handler may take. Then its context is cancelled, with the cause
// [ErrHandlerTimeout]; an error counts as a failure whose effect is unknown. Defaults to 30 s. What a store needs before and after a run in a
// transaction is not taken off it: ten seconds each, then the store counts as unavailable.
func Timeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// UncertainPolicy decides what happens to an event whose handler may have had its effect although nothing says so.
type UncertainPolicy uint8

const (
	// RerunUncertain runs it again: at least once. The handler forwards [Event.IdempotencyKey] so that the outside API can tell.
	RerunUncertain UncertainPolicy = iota
	// DeadLetterUncertain never runs it again: at most once. Every outcome but nil and [NotApplied] is left to a person, be it an
	// error, a panic, a time-out or a cancellation (rule 5).
	DeadLetterUncertain
)

// WhenUncertain chooses between [RerunUncertain] (the default) and [DeadLetterUncertain] for a handler registered with [On]. It means
// nothing for [OnTx], where a transaction leaves no doubt.
func WhenUncertain(p UncertainPolicy) Option { return func(s *settings) { s.uncertain = p } }

// ConflictPolicy decides what happens to an event whose ID is known with another content.
type ConflictPolicy uint8

const (
	// SkipConflict skips it like a duplicate if the other event is done, and waits while that is being handled. In any other
	// state it sends it to the dead-letter topic: a correction of an event that failed must not vanish.
	SkipConflict ConflictPolicy = iota
	// DeadLetterConflict sends it to the dead-letter topic at once, whatever became of the other event.
	DeadLetterConflict
)

// WhenConflict chooses between [SkipConflict] (the default) and [DeadLetterConflict]. Contents are compared by a checksum of
// the whole value, or by the fields of [Fingerprint], or not ([NoContentCheck]). Each conflict is told to a [ConflictObserver]; one a minute and handler is logged at WARN.
func WhenConflict(p ConflictPolicy) Option { return func(s *settings) { s.conflict = p } }

// TooOldPolicy decides what happens to an event that is older than what its store remembers, so that nobody can tell
// whether it was handled (rule 8).
type TooOldPolicy uint8

const (
	// RunTooOld runs it as if it had never been seen: at least once for such events.
	RunTooOld TooOldPolicy = iota + 1 // zero: the handler's default
	// DeadLetterTooOld sends it to the dead-letter topic without running it. The default for [On] and [OnBatch].
	DeadLetterTooOld
	// StopTooOld ends the consumer with an error that matches [ErrTooOld], since events from before the horizon come after
	// a rewind as a rule, and thousands of them. The default for [OnTx] and [OnBatchTx].
	StopTooOld
)

// WhenTooOld chooses between [RunTooOld], [DeadLetterTooOld] and [StopTooOld].
func WhenTooOld(p TooOldPolicy) Option { return func(s *settings) { s.tooOld = p } }

// DefaultMaxBatch is how many events share a transaction or a call of a batch handler without the option [MaxBatch].
const DefaultMaxBatch = 512

const maxMaxBatch = 4096

// MaxBatch bounds how many events share a transaction ([OnTx]) or a call ([OnBatch], [OnBatchTx]). How many do depends on
// how many are waiting, and after failures it is fewer for a while. Defaults to [DefaultMaxBatch]; at most 4,096.
func MaxBatch(n int) Option { return func(s *settings) { s.maxBatch = n } }

// TxPerEvent gives every event of an [OnTx] handler a transaction of its own. It means nothing for the others.
func TxPerEvent() Option { return func(s *settings) { s.ownTx = true } }

// SameKey lets a batch handler get several events of one Kafka key in a call, in their order. By default a batch is cut
// before the second one, since a statement that meets a row twice loses one of the changes (rule 11).
func SameKey() Option { return func(s *settings) { s.sameKey = true } }

// Concurrency bounds how many runs of this handler go on at once in this process, whatever the number of lanes and
// partitions. Duplicates are not run and do not count. Zero, the default, is no bound.
func Concurrency(n int) Option { return func(s *settings) { s.concurrency = n } }

// RateLimit bounds how often this handler is run in this process: n times per duration, evenly spaced, such as
// RateLimit(10, time.Second) for a provider that takes ten mails a second. Retries count, duplicates do not. A call of a
// batch handler is one run. Default: no limit.
func RateLimit(n int, per time.Duration) Option { return func(s *settings) { s.rate, s.per = n, per } }

// NoContentCheck turns off the comparison of values: by default a copy whose value has another CRC-32C than that of the event
// with its ID is a conflict ([WhenConflict]). Use it, or rather [Fingerprint], where honest copies of an event differ: a
// producer that sends again with a new time stamp, or with its fields in another order.
func NoContentCheck() Option { return func(s *settings) { s.unchecked = true } }

// Fingerprint compares copies of an event by the given JSON fields, in place of a checksum of the whole value, to find two
// different events with one ID. Name the fields that make the fact, such as amount and currency, never those that change with every send
// (rule 17). They are kept as an HMAC-SHA-256 under secret, which must be the same in all processes (rule 57, G-08) and
// have at least 16 bytes. A field that is missing counts as such.
func Fingerprint(secret []byte, fields ...string) Option {
	f, err := fingerprinter(secret, fields)
	return func(s *settings) {
		if err != nil {
			s.problems = append(s.problems, err)
		}
		s.fingerprint = f
	}
}

// Decode replaces the decoding of values, by default encoding/json. into points to the handler's T. An error is
// permanent: the message is dead-lettered without touching the store. An error with a mark means what it means on an error of
// the handler: a decoder that asks a schema registry returns [Unavailable] while the registry is down, and the event waits. The
// words of the error are kept in logs and dead letters like those of a handler, so f must not quote the value in them.
func Decode(f func(m *Message, into any) error) Option {
	return func(s *settings) { s.decode, s.ownDecode = f, true }
}

// Tombstones lets the handler take messages with a nil value as well: Data is then the zero value. ID and type must come
// from headers or the key. By default they are skipped and counted (rule 39).
func Tombstones() Option { return func(s *settings) { s.tombstones = true } }
