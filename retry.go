package idem

import (
	"slices"
	"time"

	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/engine"
)

// RetryPolicy limits the retries of a failing event, see [idemtype.RetryPolicy].
type RetryPolicy = idemtype.RetryPolicy

// NoLimit, as [RetryPolicy].MaxAttempts, sets no limit of attempts.
const NoLimit = idemtype.NoLimit

// Forever, as a duration in [RetryPolicy] or [Config], sets no limit of time.
const Forever = idemtype.Forever

// Retry sets how often a failing event is tried again. See [RetryPolicy] for the defaults.
func Retry(p RetryPolicy) Option { return func(s *options) { s.Retry = p } }

// Blocking keeps all order, at the price of the lane. A failing event is tried again in its place,
// as [Retry] allows, and the events behind it in the lane wait. Then the event goes to the
// dead-letter topic, so that the wait is bounded. With [Forever] and [NoLimit] in the policy the
// wait has no bound. Blocking is the default.
func Blocking() Option { return func(s *options) { s.Mode, s.Delays = engine.Blocking, nil } }

// RetryTopics moves a failing event out of the way of the others. An event that has failed in its
// place as often as [Retry] allows is published to a retry topic of the group
// ([deadletter.RetryTopic]). From there it is tried again after the first delay, then after the
// second, once each. After the last delay the event goes to the dead-letter topic. Events of its
// key overtake it meanwhile. The same consumer reads the retry topics, in the same scope.
// RetryTopics works with every store. If a crash leaves two copies of an attempt, the store lets
// one of them run.
//
// After an error of [RetryAfter] the event goes to the next delay that is at least that long. It
// never returns to a delay that it has skipped. If the time is longer than every delay, the event
// waits for the longest delay again and again until the time has passed. These waits count as no
// attempt.
//
// The delays are whole milliseconds and must ascend. At most 16 are allowed.
func RetryTopics(delays ...time.Duration) Option {
	return func(s *options) { s.Mode, s.Delays = engine.Unordered, slices.Clone(delays) }
}

// KeyOrdered keeps the order of events with the same Kafka key and holds up no others. An event
// that has failed in its place as often as [Retry] allows is deferred: it waits in a table of the
// store for its next attempts after the given delays. Later events of its Kafka key wait behind it,
// through restarts and rebalances. The store must be a [dedup.Deferrer], such as those of
// dedup/pgstore and dedup/sqlstore. Events without a Kafka key have no order and wait alone.
// Handlers with other modes take no part in that order.
//
// After the last delay the event goes to the dead-letter topic. The events behind it stay until a
// person replays or skips it ("idem dlq replay", "idem event skip"), unless [ContinueAfterDead] is
// given. An event that becomes a dead letter without having waited in the store holds up no other,
// such as one with [Permanent] at its first run.
//
// The delays must ascend, and at most 16 are allowed. They are kept to about a second.
func KeyOrdered(delays ...time.Duration) Option {
	return func(s *options) { s.Mode, s.Delays = engine.KeyOrdered, slices.Clone(delays) }
}

// ContinueAfterDead lets the events behind one that was dead-lettered go on, in a handler that is
// [KeyOrdered].
func ContinueAfterDead() Option { return func(s *options) { s.ContinueAfterDead = true } }
