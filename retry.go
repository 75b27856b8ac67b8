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

// Blocking keeps all order, at the price of the lane: a failing event is tried again in its place,
// as [Retry] says, and what is behind it in its lane waits. Then it goes to the dead-letter topic,
// so that the wait is bounded; unless the policy says [Forever] and [NoLimit]. The default.
func Blocking() Option { return func(s *options) { s.Mode, s.Delays = engine.Blocking, nil } }

// RetryTopics declares the order mode Unordered: when an event has failed in its place as often as
// [Retry] allows, it is published to a topic of the group ([deadletter.RetryTopic]), from which it
// is tried again after the first delay, then after the second, once each, and goes to the
// dead-letter topic after the last. Events of its key overtake it meanwhile. It works with every
// store, which keeps at most one copy of each attempt running, whatever crashes in between (rule
// 3). The topics are read by the same consumer, in the same scope.
//
// An error made by [RetryAfter] goes to the next delay that is long enough. If it wants more time
// than the longest one, it goes there again and again, which counts as no attempt, until its time
// has come (rule 42).
//
// Delays must ascend, from a millisecond up; there may be 16.
func RetryTopics(delays ...time.Duration) Option {
	return func(s *options) { s.Mode, s.Delays = engine.Unordered, slices.Clone(delays) }
}

// KeyOrdered keeps the order of events with the same Kafka key and holds up no others: when an
// event has failed in its place as often as [Retry] allows, it waits in the store, in a table, for
// its next attempts after the given delays, and later events of its Kafka key wait behind it,
// through restarts and rebalances (rule 4). The store must be a [dedup.Deferrer], such as those of
// dedup/pgstore and dedup/sqlstore. Events without a Kafka key have no order and wait alone.
// Handlers with other modes take no part in that order.
//
// After the last delay the event goes to the dead-letter topic, and those behind it stay until a
// person replays or skips it ("idem dlq replay", "idem event skip"), unless [ContinueAfterDead] is
// given. Delays must ascend; there may be 16. They are kept to the second or so.
func KeyOrdered(delays ...time.Duration) Option {
	return func(s *options) { s.Mode, s.Delays = engine.KeyOrdered, slices.Clone(delays) }
}

// ContinueAfterDead lets the events behind one that was dead-lettered go on, in a handler that is
// [KeyOrdered].
func ContinueAfterDead() Option { return func(s *options) { s.ContinueAfterDead = true } }
