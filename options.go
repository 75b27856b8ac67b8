package idem

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/engine"
	"github.com/idem-go/idem/internal/identity"
)

// Option is a setting of a router ([NewRouter]), of a group of handlers ([Router.With]) or of one
// handler. The option of a handler overrides that of the group, and a group overrides the router.
type Option func(*options)

type options struct {
	engine.Settings
	tenantSet bool
	// the extractors of FingerprintOf call a Decoder
	fingerprintDecodes bool
	decode             func(m *Message, into any) error
	decoder            Decoder // instead of decode
	decodedBy          string  // the last option that set one of them; "" without
	classify           func(error) error
}

// newSettings applies options to the defaults, the later lists over the earlier ones.
func newSettings(lists ...[]Option) *options {
	s := &options{Settings: engine.DefaultSettings()}
	s.decode = func(m *Message, into any) error { return json.Unmarshal(m.Value, into) }
	for i, list := range lists {
		if i > 0 && s.Unavailable != (UnavailablePolicy{}) {
			s.Problems = append(s.Problems, errors.New(
				"WhenUnavailable is a default of a router or a group: give it to each handler itself"))
		}
		for _, o := range list {
			if o == nil {
				s.Problems = append(s.Problems, errors.New("nil option"))
				continue
			}
			o(s)
		}
	}
	if s.tenantSet && s.Tenant.Find == nil {
		s.Problems = append(s.Problems, errors.New("Tenant: "+engine.InvalidExtractor))
	}
	if s.decode == nil && s.decoder == nil || isNil(s.decoder) {
		s.Problems = append(s.Problems, errors.New(s.decodedBy+" must not be nil"))
	}
	s.Complete()
	return s
}

// Store sets the store of a handler. The default is [Config].Store. Use it to keep the claims of
// one handler in Redis, for example, and the marks of another in Postgres.
func Store(store dedup.Store) Option { return func(s *options) { s.Store = store } }

// Scope sets the scope of a handler, which is a namespace of keys in the store. Equal IDs in
// different scopes are different events. The default is [Config].Scope, in a consumer the group.
//
// A change of the scope makes every event new again.
func Scope(scope string) Option { return func(s *options) { s.Scope = scope } }

// Name sets the name of a handler. The default is the event type. [Event.IdempotencyKey] includes
// the name. Give handlers different names if they send the same event to the same outside API.
func Name(name string) Option { return func(s *options) { s.Name = name } }

// Tenant sets the extractor of the tenant of an event. Equal IDs of different tenants are
// different events. By default all events share the empty tenant.
//
// A message without a tenant becomes a dead letter.
func Tenant(e Extractor) Option {
	return func(s *options) { s.Tenant, s.tenantSet = e.x, true }
}

// ID sets the extractor of the event ID. The default is [StandardID].
func ID(e Extractor) Option { return func(s *options) { s.ID = e.x } }

// Type sets the extractor of the event type, by which the router chooses the handler. The
// default is [StandardType]. If a topic carries one type only, set Type([Fixed]("order.created")).
func Type(e Extractor) Option {
	src := &engine.TypeSource{Extractor: e.x}
	return func(s *options) { s.Source = src }
}

// Retention sets for how long the store remembers a handled event. The default is 7 days, which is
// also Kafka's default for keeping records. The retention must be positive.
//
// Choose at least the retention of the topics. A store that forgets an event before Kafka deletes
// the last copy lets that copy run again.
//
// In Postgres and sqlstore, the shortest retention in a scope is the scope's memory for events that
// the store has never seen. Older ones are too old for all handlers of the scope ([WhenTooOld]).
func Retention(d time.Duration) Option { return func(s *options) { s.Retention = d } }

// Timeout limits one run of the handler. The default is 30 s; the limit must be positive. When the
// limit is over, the handler's context is cancelled with the cause [ErrHandlerTimeout]. A nil
// result still counts as a success. An error counts as a failure, and the effect may have happened.
//
// For a handler in a transaction, the store has ten seconds of its own before the run and ten after
// the run. A store that does not answer within those counts as unavailable.
func Timeout(d time.Duration) Option { return func(s *options) { s.Timeout = d } }

// WhenUncertain chooses the policy for uncertain events. Default: [RerunUncertain]. An unknown
// value is a mistake of wiring. The option applies to [On] and [OnBatch]. It has no effect on
// transactional handlers, because their transaction is either committed or rolled back.
func WhenUncertain(p UncertainPolicy) Option { return func(s *options) { s.Uncertain = p } }

// WhenConflict chooses between [SkipConflict], the default, and [DeadLetterConflict].
//
// By default a checksum of the whole value is compared. [Fingerprint] compares chosen fields, and
// [NoContentCheck] turns the comparison off. A [observe.ConflictObserver] gets every conflict. The
// log has at most one of them a minute for each handler, at WARN.
func WhenConflict(p ConflictPolicy) Option { return func(s *options) { s.Conflict = p } }

// WhenNoID chooses between [DeadLetterNoID], the default, [SkipNoID] and [RunNoID]. The policy is
// for records without an ID. An invalid ID, IDs that differ, and a missing tenant still make a
// record a dead letter. An unknown value is a mistake of wiring.
//
// With RunNoID the handler runs at each delivery: after a rebalance, a crash or a rewind again, and
// for each copy. [Event].ID is empty. [Event.IdempotencyKey] is made of topic, partition and
// offset, so an outside API recognizes a redelivery of the record, but not a copy. The handler must
// be [Blocking], and [DeadLetterUncertain] is refused. [OnTx] and [OnBatchTx] need a store that is
// a [dedup.TxRunner].
//
// Observers get skipped records as [observe.SkippedEvent] and the others as
// [observe.UnprotectedEvent]. The log has at most one line a minute for each handler.
func WhenNoID(p NoIDPolicy) Option { return func(s *options) { s.NoID = p } }

// WhenUnavailable lets a handler run while its store is down. By default events wait for the store.
//
// WhenUnavailable is only for effects that do no harm when they happen twice, and that are needed
// even then: an alarm, a refresh of a cache. Within the bounds of p the events of the handler run
// without a claim and without a record:
//
//   - a duplicate runs again, also of an event that was handled before the outage;
//   - another worker may run the same event at the same time;
//   - a copy that comes after the outage runs again, because no success was recorded;
//   - an event runs again if the outage began before its success was recorded;
//   - a claim with a lost answer may hold up a copy for a lease, after which the copy runs with
//     [Event].Uncertain.
//
// [Event.IdempotencyKey] is the usual one, and [Event].Fence is zero. [Retry] applies to failures,
// and a dead letter leaves no record. After the outage, the next attempt of an event that failed is
// claimed as usual, and the failed runs still count. One event in two seconds asks the store, and
// waits for its answer as usual. After the bounds, events wait for the store, also between two
// attempts. The bounds count per process and handler. They begin anew in a later outage, at least
// RunFor after the last event that ran without the store, if the store has taken a change of this
// process meanwhile. A store that only reads may come and go, and that is one outage for the bounds.
//
// Only an error that matches [dedup.ErrUnavailable] counts as down, and a store that is not set up
// ([dedup.SetupError]) does not. The log has a line at level ERROR at the begin and at the bounds,
// and one at WARN when the store is back. Observers get each event as [observe.UnprotectedEvent].
//
// The option must be given to the handler itself: as a default of a router or a group it is a
// mistake of wiring. So it is for [OnTx] and [OnBatchTx], with [DeadLetterUncertain], [RetryTopics]
// or [KeyOrdered], and with bounds that are not positive.
func WhenUnavailable(p UnavailablePolicy) Option { return func(s *options) { s.Unavailable = p } }

// WhenTooOld chooses between [RunTooOld], [DeadLetterTooOld] and [StopTooOld]. The default is
// DeadLetterTooOld for [On] and [OnBatch], and StopTooOld for [OnTx] and [OnBatchTx].
func WhenTooOld(p TooOldPolicy) Option { return func(s *options) { s.TooOld = p } }

// DefaultMaxBatch is the default of the option [MaxBatch].
const DefaultMaxBatch = engine.DefaultMaxBatch

// MaxBatch limits the events that share a transaction ([OnTx]) or one call ([OnBatch],
// [OnBatchTx]). The default is [DefaultMaxBatch], the range 1 to 4,096. The actual number depends
// on the waiting events, and is lower for a while after failures.
func MaxBatch(n int) Option { return func(s *options) { s.MaxBatch = n } }

// TxPerEvent gives every event of an [OnTx] handler a transaction of its own. By default waiting
// events share one. The option has no effect on other handlers.
func TxPerEvent() Option { return func(s *options) { s.TxPerEvent = true } }

// SameKey lets a batch handler get several events of one Kafka key in one call, in their order. By
// default a batch ends before the second event of a key, because an SQL statement that meets a row
// twice applies only one of the changes.
func SameKey() Option { return func(s *options) { s.SameKey = true } }

// Concurrency limits the runs of this handler at a time in this process, across all lanes and
// partitions. Duplicates do not run and do not count. A run ends with the handler, or with its
// transaction, although the result may not be published or recorded yet. The default, zero, is no
// limit.
func Concurrency(n int) Option { return func(s *options) { s.Concurrency = n } }

// RateLimit limits the runs of this handler in this process to n in each duration per, evenly
// spaced. For a provider that takes ten mails a second, use RateLimit(10, time.Second). Retries
// count, duplicates do not, if the store recognizes them before the next run may begin. A call of a
// batch handler is one run. Waiting events run in the order of their arrival at the limit. The
// default is no limit.
func RateLimit(n int, per time.Duration) Option {
	return func(s *options) { s.Rate, s.Per = n, per }
}

// CircuitBreaker stops a handler while a dependency of the handler is down. After failures runs in
// a row that returned [Unavailable], over all lanes and partitions of the process, the breaker
// opens. The events of the handler then wait in their places, without a claim and without a run.
// After wait the breaker is half-open: one event tries. A success closes the breaker, and an
// Unavailable opens it again for wait. Other errors neither count nor end the count.
//
// However long the breaker is open, no event is given up: that time does not count for
// [RetryPolicy].Outage. With [DeadLetterUncertain], an Unavailable that is not marked with
// [NotApplied] too still becomes a dead letter. While the breaker is closed, an event that alone
// gets Unavailable counts as a failure after Outage, as without a breaker.
//
// Each handler has a breaker of its own, also if the option is given to a router or a group.
// CircuitBreaker(0, 0) is the default, no breaker: each waiting lane then tries about once a second.
// A change is in the log, in [Status].OpenBreakers and an [observe.BreakerEvent].
func CircuitBreaker(failures int, wait time.Duration) Option {
	return func(s *options) { s.BreakAfter, s.BreakFor = failures, wait }
}

// NoContentCheck turns off the comparison of contents. By default a copy is a conflict
// ([WhenConflict]) if the CRC-32C of the value differs from that of the first record.
//
// Use NoContentCheck, or better [Fingerprint], if the copies of an event may differ. A producer may
// send again with a new time stamp, for example, or with the fields in another order.
func NoContentCheck() Option { return func(s *options) { s.NoContentCheck = true } }

// Fingerprint compares the copies of an event by the given JSON fields instead of a checksum of the
// whole value. Name nested fields as in [FromJSON]. Choose the fields that make the fact, such as
// amount and currency. Leave out fields that change with every send. A missing field differs from
// every value.
//
// The store keeps an HMAC-SHA-256 (RFC 2104) of the fields under secret. The secret must have at
// least 16 bytes and be the same in all processes. [SecondSecret] helps to change it.
func Fingerprint(secret []byte, fields ...string) Option {
	f, err := identity.Fingerprinter(secret, fields)
	return func(s *options) {
		if err != nil {
			s.Problems = append(s.Problems, err)
		}
		s.Fingerprint, s.fingerprintDecodes = f, false
	}
}

// SecondSecret sets a second secret of [Fingerprint] and [FingerprintOf]. A copy is equal if the
// stored fingerprint is that under either secret. New fingerprints are made with the first. Use it
// to change the secret without conflicts, in this order:
//
//  1. Add the new secret as SecondSecret in all processes.
//  2. Swap the two in all processes.
//  3. Drop the old secret after the longest [Retention], and when no event from before the swap
//     waits for a delayed retry.
//
// The store still compares in one round trip. The secret must have at least 16 bytes. Nil, the
// default, is no second secret. There is no effect on handlers without a keyed fingerprint.
func SecondSecret(secret []byte) Option {
	secret = slices.Clone(secret)
	return func(s *options) { s.SecondSecret = secret }
}

// Decode sets the function that decodes the value of a message. The default is encoding/json. into
// points to the handler's T. A message with a nil value is not decoded, see [Tombstones].
//
// Without this option, and in [On] and [OnBatch], a value is decoded after the claim, so duplicates
// cost no decoding. f is called before the claim with [DeadLetterUncertain], in shadow mode, and
// for [OnTx] and [OnBatchTx]. So no transaction is open while f asks a schema registry.
//
// An error is permanent: the event becomes a dead letter under its claim, and copies are copies of
// a dead event. A corrected copy with the same ID becomes a dead letter of class [ClassConflict]. A
// mark on the error means the same as on an error of the handler. For example, a decoder returns
// [Unavailable] while a schema registry is down, and the event waits without a claim.
//
// Logs and dead letters keep the text of the error, as for an error of a handler. So f must not
// quote the value there.
//
// f must be safe for concurrent use. A nil f is a mistake of wiring. For a function without side
// effects, use [PureDecode].
func Decode(f func(m *Message, into any) error) Option {
	return func(s *options) { s.decode, s.decoder, s.decodedBy = f, nil, "Decode" }
}

// PureDecode is [Decode] for a function without side effects. f promises three things: it asks no
// other service, it does not wait, and it decodes equal messages into equal values. The default is
// encoding/json, which counts as pure. Package codec/jsonv2, a module of its own, has a faster one.
//
// A value is decoded after the claim for all kinds of handlers, so duplicates cost no decoding. For
// [OnTx] and [OnBatchTx], f runs while the transaction is open: a slow f holds its locks. Shadow
// mode and [DeadLetterUncertain] still decode before the claim. f may run several times for one
// event.
//
// Errors mean the same as those of [Decode], and f must not quote the value in their texts. f must
// be safe for concurrent use. A nil f is a mistake of wiring. The last of the two options counts.
func PureDecode(f func(m *Message, into any) error) Option {
	return func(s *options) { s.decode, s.decoder, s.decodedBy = f, nil, "PureDecode" }
}

// Tombstones passes messages with a nil value to the handler, with the zero value as Data. ID and
// type must then come from headers or the key. By default tombstones are skipped and counted.
func Tombstones() Option { return func(s *options) { s.Tombstones = true } }
