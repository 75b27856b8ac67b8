package idem

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
)

// This file is about the copies of an event that Idem makes: for a later attempt, and of a dead letter that is replayed.
// They lie in topics of the group's own, and framework headers mean something only there (G-03, rule 6). What may run is
// for the store to say; a copy only claims to be of a position.

// The headers of a copy, beside those of a dead letter.
const (
	HeaderGeneration = "idem-generation" // how often the event was reopened
	HeaderRetry      = "idem-retry"      // how often it was moved to a later attempt since
	HeaderDue        = "idem-due"        // not to be run before
	HeaderNotBefore  = "idem-not-before" // later still: what RetryAfter said, beyond the longest delay
)

// RetryTopic is the name of a topic for later attempts of a group: "<topic>.<group>.retry.<delay>", such as
// orders.billing.retry.5s; with a delay of zero "<topic>.<group>.retry", where replayed dead letters come back.
func RetryTopic(topic, group string, delay time.Duration) string {
	name := topic + retryInfix(group)
	if delay > 0 {
		name += "." + delayText(delay)
	}
	return name
}

func retryInfix(group string) string { return "." + group + ".retry" }

// delayText is 1m instead of 1m0s.
func delayText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// sourceOf returns the topic that a retry topic of the group belongs to, and its delay.
func (p *Processor) sourceOf(topic string) (source string, delay time.Duration, ok bool) {
	at := strings.LastIndex(topic, p.retryInfix)
	if at <= 0 {
		return "", 0, false
	}
	source, rest := topic[:at], topic[at+len(p.retryInfix):]
	if rest == "" {
		return source, 0, true
	}
	delay, err := time.ParseDuration(strings.TrimPrefix(rest, "."))
	return source, delay, rest[0] == '.' && err == nil && RetryTopic(source, p.cfg.Group, delay) == topic
}

// history is what a dead letter or a copy says of an event beside its record.
type history struct {
	key         dedup.Key // zero without identity
	id, typ     string    // what is known of an event without identity
	class       Class
	err         string
	attempts    int // runs that failed
	first, last time.Time

	position  dedup.Position
	due       time.Time
	notBefore time.Time
}

// headers of m's place and history, which come behind those of the record.
func (h *history) headers(m *Message, group string) []Header {
	hs := make([]Header, 0, 20)
	add := func(k, v string) { hs = append(hs, Header{Key: k, Value: []byte(v)}) }
	add(HeaderTopic, m.Topic)
	add(HeaderPartition, strconv.Itoa(int(m.Partition)))
	add(HeaderOffset, strconv.FormatInt(m.Offset, 10))
	add(HeaderTime, stamp(m.Time))
	add(HeaderGroup, group)
	if h.key.ID != "" {
		add(HeaderScope, h.key.Scope)
		add(HeaderEventType, h.key.Type)
		add(HeaderEventID, h.key.ID)
		if h.key.Tenant != "" {
			add(HeaderTenant, h.key.Tenant)
		}
	} else {
		if h.typ != "" {
			add(HeaderEventType, h.typ)
		}
		if h.id != "" {
			add(HeaderEventID, h.id)
		}
	}
	add(HeaderAttempts, strconv.Itoa(h.attempts))
	add(HeaderFirstFailure, stamp(h.first))
	add(HeaderLastFailure, stamp(h.last))
	add(HeaderErrorClass, string(h.class))
	add(HeaderError, cutText(h.err, maxErrorText))
	if h.position.Generation > 0 {
		add(HeaderGeneration, strconv.FormatUint(uint64(h.position.Generation), 10))
	}
	return hs
}

// copyHeaders are those of a copy in a retry topic.
func (h *history) copyHeaders(m *Message, group string) []Header {
	hs := append(h.headers(m, group), Header{Key: HeaderRetry, Value: []byte(strconv.FormatUint(uint64(h.position.Retry), 10))})
	if !h.due.IsZero() {
		hs = append(hs, Header{Key: HeaderDue, Value: []byte(stamp(h.due))})
	}
	if h.notBefore.After(h.due) {
		hs = append(hs, Header{Key: HeaderNotBefore, Value: []byte(stamp(h.notBefore))})
	}
	return hs
}

// DeadLetter is a dead letter, read.
type DeadLetter struct {
	// Key of the event. Zero if the record had no identity, or none that could be found.
	Key dedup.Key
	// ID and Type are those of Key; of a dead letter without Key what could be found of them, for people to read. Either may be empty.
	ID, Type string
	// Group that wrote the dead letter.
	Group string
	// Message is the record as its producer wrote it, with the topic, partition, offset and time it had. Of a dead letter without
	// its value (see Omitted) it has neither value nor headers.
	Message *Message
	// Class and Error say why.
	Class Class
	Error string
	// Attempts counts the runs that failed, and those whose process died; FirstFailure and LastFailure are when.
	Attempts                  int
	FirstFailure, LastFailure time.Time
	// Generation counts how often the event had been reopened when it was given up.
	Generation uint32
	// Omitted says that the record was too large to be copied. What is left of it may still be at its origin.
	Omitted bool

	position dedup.Position // of the copy that it was made of
}

// ErrNotDeadLetter says that a record does not have the headers of a dead letter.
var ErrNotDeadLetter = errors.New("not a dead letter of Idem")

// ParseDeadLetter reads a record of a dead-letter topic. Trust it as far as you trust those who may write to that topic. The
// error matches [ErrNotDeadLetter].
func ParseDeadLetter(m *Message) (*DeadLetter, error) {
	h, original, group, err := parseHistory(m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotDeadLetter, err)
	}
	l := &DeadLetter{
		Key: h.key, ID: cmp.Or(h.key.ID, h.id), Type: cmp.Or(h.key.Type, h.typ), Group: group, Message: original, Class: h.class, Error: h.err, Attempts: h.attempts,
		FirstFailure: h.first, LastFailure: h.last, Generation: h.position.Generation,
		position: h.position,
	}
	_, l.Omitted = headerOf(m, HeaderValueOmitted)
	return l, nil
}

// Redrive returns the copy of a dead letter that lets its event run again: a message to the retry topic of the group that
// wrote it, and nobody else reads that. position is what [dedup.Operator] returned for the key. Without identity it means
// nothing: the copy has the position of the one that the dead letter was made of, if it was one, since the store may wait for that.
// It fails for a dead letter without its value.
func (l *DeadLetter) Redrive(position dedup.Position) (*Message, error) {
	if l.Omitted {
		m := l.Message
		return nil, fmt.Errorf("the dead letter has no value: it was too large, fetch it from %s/%d/%d", m.Topic, m.Partition, m.Offset)
	}
	if l.Key.ID == "" {
		position = l.position
	}
	h := history{
		key: l.Key, class: l.Class, err: l.Error, first: l.FirstFailure, last: l.LastFailure, position: position,
	}
	return copyOf(l.Message, &h, l.Group, 0), nil
}

// copyOf makes a message for a retry topic. It has the time of its making: what is deleted by age must not take the age of
// the record.
func copyOf(m *Message, h *history, group string, delay time.Duration) *Message {
	return &Message{
		Topic: RetryTopic(m.Topic, group, delay), Key: m.Key, Value: m.Value, Time: time.Now(),
		Headers: append(keptHeaders(m.Headers), h.copyHeaders(m, group)...),
	}
}

// copied is what is known of a message that is a copy.
type copied struct {
	history
	topic     string // of the copy; empty for a deferred event
	partition int32
	delay     time.Duration // of the topic
	received  time.Time
}

// wait returns how long a copy must still wait. The clock of the copy's writer may be wrong, so the wait ends when the delay of the
// topic has passed since the copy was received.
func (c *copied) wait() time.Duration {
	if c.due.IsZero() {
		return 0
	}
	return min(time.Until(c.due), c.delay-time.Since(c.received))
}

// open returns the record that m is a copy of, if m lies in a retry topic of the group. For any other message open returns m itself
// and nil.
func (p *Processor) open(m *Message) (*Message, *copied, error) {
	source, delay, ok := p.sourceOf(m.Topic)
	if !ok {
		return m, nil, nil
	}
	h, original, group, err := parseHistory(m)
	switch {
	case err != nil:
		return m, nil, err
	case group != p.cfg.Group || original.Topic != source:
		return m, nil, fmt.Errorf("a copy of %s for group %s does not belong here", original.Topic, group)
	}
	c := &copied{history: h, topic: m.Topic, partition: m.Partition, delay: delay, received: received(m)}
	return original, c, nil
}

// received returns when m was received: now, if no consumer has set the time.
func received(m *Message) time.Time {
	if m.Received.IsZero() {
		m.Received = time.Now()
	}
	return m.Received
}

// Due returns how long m must not be handled yet, if m is a copy for a later attempt in a retry topic of the group. The wait ends at
// the latest when the delay of the topic has passed since [Message].Received. Due sets a zero Received to the present time.
//
// HandleBatch waits for that time itself. A consumer that can pause a partition should pause it instead.
func (p *Processor) Due(m *Message) time.Duration {
	_, delay, ok := p.sourceOf(m.Topic)
	if !ok || delay == 0 {
		return 0
	}
	text, _ := headerOf(m, HeaderDue)
	due, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0
	}
	return max((&copied{history: history{due: due}, delay: delay, received: received(m)}).wait(), 0)
}

// parseHistory takes a dead letter or a copy apart.
func parseHistory(m *Message) (h history, original *Message, group string, err error) {
	r := headerReader{m: m}
	original = &Message{
		Topic: r.text(HeaderTopic), Partition: int32(r.number(HeaderPartition, 31, true)), Offset: int64(r.number(HeaderOffset, 63, true)),
		Time: r.time(HeaderTime, true), Key: m.Key, Value: m.Value, Headers: restoredHeaders(m.Headers),
	}
	group = r.text(HeaderGroup)
	h = history{
		class: Class(r.optional(HeaderErrorClass)), err: r.optional(HeaderError),
		attempts: int(r.number(HeaderAttempts, 31, false)), first: r.time(HeaderFirstFailure, false), last: r.time(HeaderLastFailure, false),
		position: dedup.Position{
			Generation: uint32(r.number(HeaderGeneration, 32, false)), Retry: uint32(r.number(HeaderRetry, 32, false)),
		},
		due: r.time(HeaderDue, false), notBefore: r.time(HeaderNotBefore, false),
	}
	id, typ := r.optional(HeaderEventID), r.optional(HeaderEventType)
	scope, identified := headerOf(m, HeaderScope)
	switch {
	case identified && id != "":
		h.key = dedup.Key{Tenant: r.optional(HeaderTenant), Scope: scope, Type: typ, ID: id}
		if err := h.key.Validate(); err != nil {
			r.fail(HeaderEventID, err)
		}
	case !identified && (dedup.Key{Type: typ, ID: cmp.Or(id, "-")}).Validate() == nil:
		h.id, h.typ = id, typ
	}
	return h, original, group, r.err
}

// restoredHeaders are those of the record that a dead letter or a copy was made of.
func restoredHeaders(headers []Header) []Header {
	var restored []Header
	for _, h := range headers {
		switch {
		case strings.HasPrefix(h.Key, HeaderOriginal+HeaderPrefix):
			h.Key = strings.TrimPrefix(h.Key, HeaderOriginal)
		case strings.HasPrefix(h.Key, HeaderOriginal):
		case strings.HasPrefix(h.Key, HeaderPrefix):
			continue
		}
		restored = append(restored, h)
	}
	return restored
}

// headerOf returns the last header of that name: ours come behind those of the record.
func headerOf(m *Message, name string) (value string, ok bool) {
	for _, h := range slices.Backward(m.Headers) {
		if h.Key == name {
			return string(h.Value), true
		}
	}
	return "", false
}

// headerReader reads headers and keeps the first error.
type headerReader struct {
	m   *Message
	err error
}

func (r *headerReader) fail(name string, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("header %s: %w", name, err)
	}
}

func (r *headerReader) optional(name string) string {
	text, _ := headerOf(r.m, name)
	return text
}

func (r *headerReader) text(name string) string {
	text, ok := headerOf(r.m, name)
	if !ok || text == "" {
		r.fail(name, errors.New("missing"))
	}
	return text
}

func (r *headerReader) number(name string, bits int, required bool) uint64 {
	text, ok := headerOf(r.m, name)
	if !ok {
		if required {
			r.fail(name, errors.New("missing"))
		}
		return 0
	}
	n, err := strconv.ParseUint(text, 10, bits)
	if err != nil {
		r.fail(name, errors.New("not a number in range"))
	}
	return n
}

func (r *headerReader) time(name string, required bool) time.Time {
	text, ok := headerOf(r.m, name)
	if !ok {
		if required {
			r.fail(name, errors.New("missing"))
		}
		return time.Time{}
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil { // see stamp
		return time.UnixMilli(ms).UTC()
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		r.fail(name, errors.New("not a time"))
	}
	return t
}
