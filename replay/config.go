package replay

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/idem-go/idem/observe"
)

// Config of a replay. The zero value of a field is its default.
type Config struct {
	// Window chooses the records. Required.
	Window Window
	// Scope decides which events run. Required.
	Scope Scope
	// Rate is the greatest number of records per second, of all partitions together. Duplicates
	// count too. Zero: no limit.
	Rate int
	// Partitions is how many partitions are read at a time, 1 to 256. Defaults to 8. The lanes of
	// the live configuration apply to each of them, and its QueueBytes to all together.
	Partitions int
	// SkipDeleted replays the rest of a window if Kafka has deleted a part of the window, or may
	// have. Without it Run returns a [*DeletedError].
	SkipDeleted bool
	// MaxFailed is how many events may be given up before Run returns [ErrTooManyFailed]. Defaults
	// to 1,000, at most 100,000; negative: Run stops at the first one.
	MaxFailed int
	// DeadLetterTopic returns the dead-letter topic of a topic, for events that an own scope gives
	// up. The topic must exist. Do not use the topic of the live group: the command idem dlq replay
	// would give the events to the live group. Without it the events are in [Result].Failed only.
	// With [SameScope] the topic is that of the live group.
	DeadLetterTopic func(topic string) string
	// BrokerWait is how long Run waits at its start for brokers that cannot be reached. The same
	// time limits how long a partition may stand still because brokers do not answer, or because a
	// transaction is open. Then Run returns the error. Defaults to 5 minutes.
	BrokerWait time.Duration
	// Observers get the events of the processor, see package observe. The observers of the live
	// configuration are not used.
	Observers []observe.Observer
}

// Scope decides which events run. Create one with [OwnScope] or [SameScope]; the zero value is
// refused.
type Scope struct {
	same bool
	name string
	own  bool
}

// OwnScope gives the replay scopes of its own: ".replay.<name>" is added to the scope of each
// handler. Every event of the window runs once for this name. Names have 1 to 64 letters, digits,
// points, hyphens and underscores.
//
// An interrupted replay continues under the same name with the same identity functions. Finish it
// within the shortest retention of the handlers, because Redis and DynamoDB forget by the clock.
func OwnScope(name string) Scope { return Scope{own: true, name: name} }

// SameScope replays in the scopes of the live group: events that the group has handled are
// duplicates. Forgotten events follow the WhenTooOld policy of their handler. Handlers with
// KeyOrdered are refused, because an event could overtake one that waits in the store.
func SameScope() Scope { return Scope{same: true} }

// suffix returns the text to add to scopes and group.
func (s Scope) suffix() string {
	if s.same {
		return ""
	}
	return ".replay." + s.name
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

const (
	maxPartitions = 256
	maxMaxFailed  = 100_000
)

func (c Config) withDefaults() Config {
	c.Partitions = cmp.Or(c.Partitions, 8)
	c.MaxFailed = cmp.Or(c.MaxFailed, 1000)
	c.BrokerWait = cmp.Or(c.BrokerWait, 5*time.Minute)
	return c
}

func (c Config) validate(topics []string) error {
	problems := c.Window.validate(topics)
	add := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	add(c.Scope == Scope{}, "Scope is not set: use OwnScope or SameScope")
	add(c.Scope.own && !nameForm.MatchString(c.Scope.name),
		"OwnScope(%q): a name has 1 to 64 letters, digits, points, hyphens and underscores", c.Scope.name)
	add(c.Scope.same && c.DeadLetterTopic != nil,
		"DeadLetterTopic is for an own scope: with SameScope it is that of the live group")
	add(c.Rate < 0, "Rate is negative")
	add(c.Partitions < 1 || c.Partitions > maxPartitions,
		"Partitions is %d, not between 1 and %d", c.Partitions, maxPartitions)
	add(c.MaxFailed > maxMaxFailed, "MaxFailed is %d, more than %d", c.MaxFailed, maxMaxFailed)
	add(c.BrokerWait < 0, "BrokerWait is negative")
	return errors.Join(problems...)
}

// checkOrder refuses handlers with KeyOrdered if the replay could break their order. types are
// their event types.
func (c Config) checkOrder(types []string) error {
	names := strings.Join(types, ", ")
	switch {
	case len(types) == 0:
		return nil
	case c.Scope.same:
		return fmt.Errorf("handlers of %s are KeyOrdered: with SameScope an event could overtake one "+
			"of its key that waits in the store: use OwnScope", names)
	case c.MaxFailed >= 0:
		return fmt.Errorf("handlers of %s are KeyOrdered: later events of a key would overtake one "+
			"that is given up: set MaxFailed to -1, so that the replay stops there", names)
	}
	return nil
}
