package idem

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/identity"
)

// Option is a setting of a router ([NewRouter]), of a group of handlers ([Router.With]) or of one
// handler. The option of a handler overrides that of the group, and a group overrides the router.
type Option func(*settings)

type settings struct {
	policy
	store       dedup.Store
	scope       string
	name        string
	tenant      identity.Extractor
	tenantSet   bool
	id          identity.Extractor
	typ         *typeSource
	retention   time.Duration
	timeout     time.Duration
	fingerprint func(*Message) (dedup.Fingerprint, error)
	unchecked   bool // contents of copies are not compared
	decode      func(m *Message, into any) error
	ownDecode   bool // decode was set with Decode
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

// typeSource is an extractor of types. Handlers with the same typeSource share a look-up.
type typeSource struct{ identity.Extractor }

var standardType = &typeSource{identity.StandardType()}

func newSettings(lists ...[]Option) settings {
	s := settings{
		id:        identity.StandardID(),
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
	s.retry = withDefaults(s.retry)
	s.problems = append(s.problems, s.validate()...)
	return s
}

func (s *settings) validate() (problems []error) {
	if err := validateRetry(s.retry); err != nil {
		problems = append(problems, err)
	}
	if s.id.Find == nil || s.typ.Find == nil || s.tenantSet && s.tenant.Find == nil {
		problems = append(problems, errors.New(
			"ID, Type and Tenant need valid extractors: FromFunc needs a descriptor and a function"))
	}
	if s.decode == nil {
		problems = append(problems, errors.New("Decode must not be nil"))
	}
	if s.retention <= 0 {
		problems = append(problems, fmt.Errorf("Retention must be positive, not %s", s.retention))
	}
	if s.timeout <= 0 {
		problems = append(problems, fmt.Errorf("Timeout must be positive, not %s", s.timeout))
	}
	if s.maxBatch < 1 || s.maxBatch > maxMaxBatch {
		problems = append(problems,
			fmt.Errorf("MaxBatch must be between 1 and %d, not %d", maxMaxBatch, s.maxBatch))
	}
	if s.concurrency < 0 || s.rate < 0 || s.rate > 0 && s.per <= 0 {
		problems = append(problems, errors.New("Concurrency and RateLimit must be positive"))
	}
	if err := checkDelays(s); err != nil {
		problems = append(problems, err)
	}
	return problems
}

// Store sets the store of a handler. The default is [Config].Store. Use it to keep the claims of
// one handler in Redis, for example, and the marks of another in Postgres.
func Store(store dedup.Store) Option { return func(s *settings) { s.store = store } }

// Scope sets the scope of a handler, which is a namespace of keys in the store. Equal IDs in
// different scopes are different events. The default is [Config].Scope, in a consumer the group.
//
// A change of the scope makes every event new again.
func Scope(scope string) Option { return func(s *settings) { s.scope = scope } }

// Name sets the name of a handler. The default is the event type. [Event.IdempotencyKey] includes
// the name. Give handlers different names if they send the same event to the same outside API.
func Name(name string) Option { return func(s *settings) { s.name = name } }

// Tenant sets the extractor of the tenant of an event. Equal IDs of different tenants are
// different events. By default all events share the empty tenant.
//
// A message without a tenant becomes a dead letter.
func Tenant(e Extractor) Option {
	return func(s *settings) { s.tenant, s.tenantSet = e.x, true }
}

// ID sets the extractor of the event ID. The default is [StandardID].
func ID(e Extractor) Option { return func(s *settings) { s.id = e.x } }

// Type sets the extractor of the event type, by which the router chooses the handler. The
// default is [StandardType]. If a topic carries one type only, set Type([Fixed]("order.created")).
func Type(e Extractor) Option {
	src := &typeSource{e.x}
	return func(s *settings) { s.typ = src }
}

// Retry sets how often a failing event is tried again. See [RetryPolicy] for the defaults.
func Retry(p RetryPolicy) Option { return func(s *settings) { s.retry = p } }

// Retention sets for how long the store remembers a handled event. The default is 7 days, which is
// also Kafka's default for keeping records. The retention must be positive.
//
// Choose at least the retention of the topics. A store that forgets an event before Kafka deletes
// the last copy lets that copy run again.
func Retention(d time.Duration) Option { return func(s *settings) { s.retention = d } }

// Timeout limits one run of the handler. The default is 30 s; the limit must be positive. When the
// limit is over, the handler's context is cancelled with the cause [ErrHandlerTimeout]. A nil
// result still counts as a success. An error counts as a failure, and the effect may have happened.
//
// For a handler in a transaction, the store has ten seconds of its own before the run and ten after
// the run. A store that does not answer within those counts as unavailable.
func Timeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// WhenUncertain chooses between [RerunUncertain], the default, and [DeadLetterUncertain]. The
// option applies to [On] and [OnBatch]. It has no effect on transactional handlers, whose
// transaction is either committed or rolled back.
func WhenUncertain(p UncertainPolicy) Option { return func(s *settings) { s.uncertain = p } }

// WhenConflict chooses between [SkipConflict], the default, and [DeadLetterConflict].
//
// By default a checksum of the whole value is compared. [Fingerprint] compares chosen fields, and
// [NoContentCheck] turns the comparison off. A [observe.ConflictObserver] gets every conflict. The log has
// at most one of them a minute for each handler, at WARN.
func WhenConflict(p ConflictPolicy) Option { return func(s *settings) { s.conflict = p } }

// WhenTooOld chooses between [RunTooOld], [DeadLetterTooOld] and [StopTooOld].
func WhenTooOld(p TooOldPolicy) Option { return func(s *settings) { s.tooOld = p } }

// DefaultMaxBatch is the default of the option [MaxBatch].
const DefaultMaxBatch = 512

const maxMaxBatch = 4096

// MaxBatch limits the events that share a transaction ([OnTx]) or one call ([OnBatch],
// [OnBatchTx]). The default is [DefaultMaxBatch], the range 1 to 4,096. The actual number depends
// on the waiting events, and is lower for a while after failures.
func MaxBatch(n int) Option { return func(s *settings) { s.maxBatch = n } }

// TxPerEvent gives every event of an [OnTx] handler a transaction of its own. By default waiting
// events share one. The option has no effect on other handlers.
func TxPerEvent() Option { return func(s *settings) { s.ownTx = true } }

// SameKey lets a batch handler get several events of one Kafka key in one call, in their order. By
// default a batch ends before the second event of a key, because an SQL statement that meets a row
// twice applies only one of the changes.
func SameKey() Option { return func(s *settings) { s.sameKey = true } }

// Concurrency limits the runs of this handler at a time in this process, across all lanes and
// partitions. Duplicates do not run and do not count. The default, zero, is no limit.
func Concurrency(n int) Option { return func(s *settings) { s.concurrency = n } }

// RateLimit limits the runs of this handler in this process to n in each duration per, evenly
// spaced. For a provider that takes ten mails a second, use RateLimit(10, time.Second). Retries
// count, duplicates do not. A call of a batch handler is one run. The default is no limit.
func RateLimit(n int, per time.Duration) Option {
	return func(s *settings) { s.rate, s.per = n, per }
}

// NoContentCheck turns off the comparison of contents. By default a copy is a conflict
// ([WhenConflict]) if the CRC-32C of the value differs from that of the first record.
//
// Use NoContentCheck, or better [Fingerprint], if the copies of an event may differ: the producer
// sends again with a new time stamp, or with the fields in another order.
func NoContentCheck() Option { return func(s *settings) { s.unchecked = true } }

// Fingerprint compares the copies of an event by the given JSON fields instead of a checksum of the
// whole value. Name nested fields as in [FromJSON]. Choose the fields that make the fact, such as
// amount and currency. Leave out fields that change with every send. A missing field differs from
// every value.
//
// The store keeps an HMAC-SHA-256 (RFC 2104) of the fields under secret. The secret must have at
// least 16 bytes and be the same in all processes.
func Fingerprint(secret []byte, fields ...string) Option {
	f, err := identity.Fingerprinter(secret, fields)
	return func(s *settings) {
		if err != nil {
			s.problems = append(s.problems, err)
		}
		s.fingerprint = f
	}
}

// Decode sets the function that decodes the value of a message. The default is encoding/json. into
// points to the handler's T. A message with a nil value is not decoded, see [Tombstones].
//
// An error is permanent: the message becomes a dead letter without a claim in the store. A mark on
// the error means the same as on an error of the handler. For example, a decoder returns
// [Unavailable] while a schema registry is down, and the event waits.
//
// Logs and dead letters keep the text of the error, as for an error of a handler. So f must not
// quote the value there.
func Decode(f func(m *Message, into any) error) Option {
	return func(s *settings) { s.decode, s.ownDecode = f, true }
}

// Tombstones passes messages with a nil value to the handler, with the zero value as Data. ID and
// type must then come from headers or the key. By default tombstones are skipped and counted.
func Tombstones() Option { return func(s *settings) { s.tombstones = true } }
