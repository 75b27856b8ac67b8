package idem

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/dedup"
)

// Producer sends dead letters. It returns nil only when all messages are durable (acks=all), and an error that matches
// [ErrTooLarge] if the broker will never take one for its size. Each message names its topic; its Partition and Offset
// mean nothing. Safe for concurrent use.
type Producer interface {
	Produce(ctx context.Context, msgs ...*Message) error
}

// Class says in one word why an event was dead-lettered. It is the header idem-error-class and fit for a metric label.
type Class string

// The classes.
const (
	ClassPermanent   Class = "permanent"     // the handler said so
	ClassFailed      Class = "failed"        // the retry policy is spent
	ClassRetryAfter  Class = "retry-after"   // it asked for a wait that is too long to wait in place
	ClassPanic       Class = "panic"         // panic or Goexit, and the policy is spent
	ClassTimeout     Class = "timeout"       // time-out, and the policy is spent
	ClassUncertain   Class = "uncertain"     // the effect may have happened and the policy is DeadLetterUncertain
	ClassCrashLoop   Class = "crash-loop"    // several holders died on it
	ClassAlreadyDead Class = "already-dead"  // a copy of an event that was given up
	ClassConflict    Class = "conflict"      // known with another content
	ClassTooOld      Class = "too-old"       // older than the store's memory
	ClassUndecodable Class = "undecodable"   // the value is not what the handler takes
	ClassNoID        Class = "no-event-id"   // no identity, or none that a store can hold
	ClassAmbiguous   Class = "ambiguous-id"  // several identities or types that disagree
	ClassNoType      Class = "no-event-type" // no type
	ClassNotJSON     Class = "not-json"      // no identity or no type, since they were looked for in JSON, which the value is not
	ClassNotACopy    Class = "not-a-copy"    // lies in a retry topic, and is not one of our copies
)

// The headers of a dead letter. All others of the original record are kept as they were, but for foreign ones with our
// prefix, which move behind [HeaderOriginal].
const (
	HeaderPrefix         = "idem-"
	HeaderOriginal       = "idem-original-"
	HeaderTopic          = "idem-origin-topic"
	HeaderPartition      = "idem-origin-partition"
	HeaderOffset         = "idem-origin-offset"
	HeaderTime           = "idem-origin-time" // RFC 3339, milliseconds
	HeaderGroup          = "idem-group"
	HeaderScope          = "idem-scope"  // only of an event with an identity
	HeaderTenant         = "idem-tenant" // only where there is one
	HeaderEventID        = "idem-event-id"
	HeaderEventType      = "idem-event-type"
	HeaderAttempts       = "idem-attempts"
	HeaderFirstFailure   = "idem-first-failure"
	HeaderLastFailure    = "idem-last-failure"
	HeaderErrorClass     = "idem-error-class"
	HeaderError          = "idem-error"           // at most 1 KiB
	HeaderValueOmitted   = "idem-value-omitted"   // size of a value that did not fit: fetch it from the origin
	HeaderHeadersOmitted = "idem-headers-omitted" // number of headers left out with it
)

// maxErrorText bounds the text of an error in a dead letter (T-04).
const maxErrorText = 1 << 10

// failure is why a message is given up.
type failure struct {
	key         dedup.Key // zero without identity
	id, typ     string    // what is known all the same
	class       Class
	err         error
	attempts    int
	generation  uint32
	retry       uint32 // of a copy that found no way to the store: where that still waits for it
	first, last time.Time
}

// dead letter copies m, byte for byte, and says where it comes from and why.
func (p *Processor) deadLetter(m *Message, f failure) *Message {
	return &Message{
		Topic: p.DeadLetterTopic(m.Topic), Key: m.Key, Value: m.Value, Time: m.Time,
		Headers: append(keptHeaders(m.Headers), p.deadLetterHeaders(m, f)...),
	}
}

// keptHeaders are those of the record. Foreign ones with our prefix are never trusted and move aside (G-03, rule 44). In a
// dead letter that was published again they take the place of what moved aside the last time, so that dead letters of dead letters
// do not grow (T-04).
func keptHeaders(headers []Header) []Header {
	aside := make(map[string]bool)
	for _, h := range headers {
		if strings.HasPrefix(h.Key, HeaderPrefix) && !strings.HasPrefix(h.Key, HeaderOriginal) {
			aside[HeaderOriginal+h.Key] = true
		}
	}
	kept := make([]Header, 0, len(headers)+16)
	for _, h := range headers {
		switch {
		case aside[h.Key]:
			continue
		case strings.HasPrefix(h.Key, HeaderPrefix) && !strings.HasPrefix(h.Key, HeaderOriginal):
			h.Key = HeaderOriginal + h.Key
		}
		kept = append(kept, h)
	}
	return kept
}

func (p *Processor) deadLetterHeaders(m *Message, f failure) []Header {
	h := history{key: f.key, id: f.id, typ: f.typ, class: f.class, err: p.errorText(f.err), attempts: f.attempts, first: f.first, last: f.last}
	h.position.Generation = f.generation
	hs := h.headers(m, p.cfg.Group)
	if f.retry > 0 {
		hs = append(hs, Header{Key: HeaderRetry, Value: []byte(strconv.FormatUint(uint64(f.retry), 10))})
	}
	return hs
}

// pointer is a dead letter without the value, for a record that is too large to be copied: the origin headers say where it
// is. A last resort, logged as such (T-04, rule 45).
func (p *Processor) pointer(m *Message, f failure) *Message {
	l := &Message{Topic: p.DeadLetterTopic(m.Topic), Key: m.Key, Time: m.Time, Headers: p.deadLetterHeaders(m, f)}
	if len(l.Key) > maxErrorText {
		l.Key = nil
	}
	l.Headers = append(l.Headers,
		Header{Key: HeaderValueOmitted, Value: []byte(strconv.Itoa(len(m.Value)))},
		Header{Key: HeaderHeadersOmitted, Value: []byte(strconv.Itoa(len(m.Headers)))})
	return l
}

// stamp is RFC 3339, which ends with the year 9999. A producer that counts microseconds is far beyond that: its times are
// milliseconds since 1970, as Kafka has them.
func stamp(t time.Time) string {
	if t = t.UTC(); t.Year() < 0 || t.Year() > 9999 {
		return strconv.FormatInt(t.UnixMilli(), 10)
	}
	return t.Format("2006-01-02T15:04:05.000Z07:00")
}

// cutText shortens s to at most n bytes of valid UTF-8.
func cutText(s string, n int) string {
	if len(s) > n {
		s = s[:n]
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
		if r, _ := utf8.DecodeLastRuneInString(s); r == utf8.RuneError && len(s) > 0 {
			s = s[:len(s)-1]
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// publishDeadLetter publishes until the dead letter is acknowledged (T-01), or until ctx or the wait budget of the call ends.
func (p *Processor) publishDeadLetter(ctx context.Context, budget *waitBudget, m *Message, f failure) error {
	if p.cfg.Producer == nil {
		return fmt.Errorf("%w: %s/%d/%d is to be dead-lettered (%s): %w", ErrNoProducer, m.Topic, m.Partition, m.Offset, f.class, f.err)
	}
	l, omitted := p.deadLetter(m, f), false
	err := p.publish(ctx, budget, "dead letters", func(ctx context.Context) error {
		err := p.produce(ctx, l)
		if errors.Is(err, ErrTooLarge) {
			p.log.WarnContext(ctx, "dead letter too large, sending it without its value", p.messageAttrs(m, f.key)...)
			l, omitted = p.pointer(m, f), true
			err = p.produce(ctx, l)
		}
		if errors.Is(err, ErrRefused) && !l.Time.IsZero() {
			l.Time = time.Time{}
			err = p.produce(ctx, l)
		}
		if errors.Is(err, ErrTooLarge) { // there is nothing smaller: until somebody raises the limit
			err = errors.New("dead letter without its value: " + p.errorText(err))
		}
		return err
	})
	if err != nil {
		return err
	}
	attrs := append(p.messageAttrs(m, f.key), "class", f.class, "dead_letter_topic", l.Topic, "error", p.errorText(f.err))
	p.log.ErrorContext(ctx, "event dead-lettered", attrs...)
	for _, o := range p.obs.deadLetter {
		o.ObserveDeadLetter(ctx, DeadLetterEvent{Group: p.cfg.Group, Message: m, Key: f.key, Topic: l.Topic, Class: f.class, Err: f.err, Omitted: omitted})
	}
	return nil
}

// publish calls send until that succeeds, or until ctx or the wait budget of the call ends. What is too large is not tried
// again, if send says so.
func (p *Processor) publish(ctx context.Context, budget *waitBudget, what string, send func(context.Context) error) error {
	return p.insist(ctx, budget, &p.producer, what, func() (bool, error) {
		err := send(ctx)
		return errors.Is(err, ErrTooLarge), err
	})
}

// produce sends one message. It outlives a stop by a moment, since a dead letter that was begun had better be finished.
func (p *Processor) produce(ctx context.Context, l *Message) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), produceTimeout)
	defer cancel()
	return p.cfg.Producer.Produce(ctx, l)
}

// produceTimeout bounds one attempt to send a dead letter.
const produceTimeout = 10 * time.Second
