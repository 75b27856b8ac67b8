package publish

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/sendbudget"
)

// aloneWait bounds how long a call waits until no other message is in flight, to send a message
// alone.
const aloneWait = 5 * time.Second

// errBrokersSilent is the cause of a call that ends by the time-out of the producer.
var errBrokersSilent = errors.New("brokers do not answer")

// errTopicUnknown means that there was no answer about a topic within askWait. The brokers may be
// silent, or the client may be asking again for a topic that does not exist.
var errTopicUnknown = errors.New("no broker has said yet whether the topic exists")

// call is one call of ProduceEach. Only one goroutine uses a call.
type call struct {
	s       *sender
	msgs    []*idem.Message
	errs    []error
	results chan result // has room for all, so that no result waits
}

// publish sends the messages and returns an error for each.
func (s *sender) publish(ctx context.Context, msgs []*idem.Message) []error {
	c := &call{
		s: s, msgs: msgs, errs: make([]error, len(msgs)), results: make(chan result, len(msgs)),
	}
	var all []int
	for i, m := range msgs {
		if c.errs[i] = s.unfit(m); c.errs[i] == nil {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		return c.errs
	}
	for part := range partsOf(all, func(i int) int { return sizeOf(msgs[i]) }) {
		c.sendByTopic(ctx, part)
	}
	c.sendAlone(ctx, c.failed(all, isBatchVerdict))
	c.lookUpAgain(ctx, all)
	return c.errs
}

// maxTogether bounds, in bytes, the messages that sarama gets before their results are awaited.
//
// All messages for a partition become one batch, up to Producer.MaxMessageBytes, which must admit
// the largest message. A broker takes batches of 1 MB by default. A refused batch costs more than a
// round trip, since the call halves the batch until the bad message is found.
const maxTogether = 900_000

// partsOf yields indexes in parts of at most maxTogether bytes, or of one message.
func partsOf(indexes []int, sizeOf func(i int) int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		first, size := 0, 0
		for n, i := range indexes {
			weight := sizeOf(i)
			if n > first && size+weight > maxTogether {
				if !yield(indexes[first:n]) {
					return
				}
				first, size = n, 0
			}
			size += weight
		}
		yield(indexes[first:])
	}
}

// isBatchVerdict reports whether the broker has refused a batch. Messages that are sent together
// share a batch, so another message may be the reason.
//
// The error of an old epoch is no such verdict: an earlier attempt may be in the log, and its
// response may be lost. Another send would double the batch.
func isBatchVerdict(err error) bool { return isTooLarge(err) || isRefused(err) }

func (c *call) failed(indexes []int, test func(error) bool) (some []int) {
	for _, i := range indexes {
		if err := c.errs[i]; err != nil && test(err) {
			some = append(some, i)
		}
	}
	return some
}

// sendByTopic sends the messages of each topic as soon as the topic is found, and waits for the
// results.
func (c *call) sendByTopic(ctx context.Context, indexes []int) {
	byTopic := make(map[string][]int)
	for _, i := range indexes {
		c.errs[i] = errNotSent
		byTopic[c.msgs[i].Topic] = append(byTopic[c.msgs[i].Topic], i)
	}
	if ctx.Err() != nil { // of an earlier part
		c.cut(ctx, indexes)
		return
	}
	answers, asked := c.s.ask(byTopic, nil)
	if !asked {
		c.set(indexes, errClosed)
		return
	}
	held := &heldBack{s: c.s, msgs: c.msgs, errs: c.errs}
	defer held.stop()
	topics, inFlight := len(byTopic), 0
	for topics > 0 || inFlight > 0 || len(held.asking) > 0 {
		select {
		case a := <-answers:
			topics--
			if a.err == nil {
				inFlight += c.send(ctx, held.split(ctx, a.topic, a.all, byTopic[a.topic]), false)
			} else {
				c.set(byTopic[a.topic], a.err)
			}
		case r := <-held.results:
			inFlight += c.send(ctx, held.answered(r), false)
		case <-held.over:
			held.giveUp()
		case r := <-c.results:
			inFlight--
			c.errs[r.index] = r.err
		case <-ctx.Done():
			c.cut(ctx, indexes)
			return
		}
	}
}

// send gives messages to sarama, and returns how many sarama took.
func (c *call) send(ctx context.Context, indexes []int, alone bool) (sent int) {
	for _, i := range indexes {
		o := &origin{index: i, weight: weightOf(c.msgs[i]), results: c.results}
		err := c.s.budget.Take(ctx, o.weight, alone)
		if err == nil {
			if err = c.s.enqueue(ctx, c.msgs[i], o); err != nil {
				c.s.budget.Give(o.weight)
			}
		}
		if err != nil {
			c.errs[i] = fmt.Errorf("%w: %w", errNotSent, err)
			continue // the rest fails in the same way, and each gets its error
		}
		c.errs[i] = errNoAnswer
		sent++
	}
	return sent
}

// sendAlone finds the messages that are refused alone. It halves groups of messages, while no other
// call has messages in flight, until each message has a verdict.
func (c *call) sendAlone(ctx context.Context, indexes []int) {
	if len(indexes) == 0 {
		return
	}
	if err := c.s.budget.Lock(ctx, aloneWait); err != nil {
		for _, i := range indexes {
			c.notAlone(i, err)
		}
		return
	}
	defer c.s.budget.Unlock()
	indexes, unlock := c.withoutProbes(indexes)
	defer unlock()
	for groups := [][]int{indexes}; len(groups) > 0; {
		group := groups[len(groups)-1]
		groups = groups[:len(groups)-1]
		if !c.sendGroup(ctx, group) {
			for _, rest := range groups {
				c.set(rest, errNotSent)
				c.cut(ctx, rest)
			}
			return
		}
		bad := c.failed(group, isBatchVerdict)
		switch {
		case len(group) == 1 && len(bad) == 1:
			c.classify(group[0])
		case len(bad) == 1:
			groups = append(groups, bad)
		case len(bad) > 1: // the first half is next, to keep the order
			groups = append(groups, bad[len(bad)/2:], bad[:len(bad)/2])
		}
	}
}

// notAlone sets the error of a message that was refused in a batch, and could not be sent alone.
// The verdict is the batch's, not the message's: the error has only its text.
func (c *call) notAlone(i int, err error) {
	verdict := idem.ErrorText(c.errs[i])
	c.errs[i] = fmt.Errorf("refused in a batch (%s), and could not be sent alone: %w", verdict, err)
}

// withoutProbes returns the messages that share no batch with a probe, and holds new probes back
// until end is called. The other messages get an error.
func (c *call) withoutProbes(indexes []int) (some []int, end func()) {
	a := c.s.away
	if a == nil {
		return indexes, func() {}
	}
	a.setAlone(true)
	for _, i := range indexes {
		if a.mayProbe(ToSarama(c.msgs[i]), c.s.topics.partitions(c.msgs[i].Topic)) {
			c.notAlone(i, sendbudget.ErrOthersInFlight)
		} else {
			some = append(some, i)
		}
	}
	return some, func() { a.setAlone(false) }
}

// sendGroup sends and waits for the results. The result is false if ctx ended before. After that,
// results of messages that were cut may be in the channel.
func (c *call) sendGroup(ctx context.Context, group []int) bool {
	if ctx.Err() != nil {
		c.set(group, errNotSent)
		c.cut(ctx, group)
		return false
	}
	for inFlight := c.send(ctx, group, true); inFlight > 0; inFlight-- {
		select {
		case r := <-c.results:
			c.errs[r.index] = r.err
		case <-ctx.Done():
			c.cut(ctx, group)
			return false
		}
	}
	return true
}

// classify adds the class to the error of a message that was sent alone.
func (c *call) classify(i int) {
	class := idem.ErrRefused
	if isTooLarge(c.errs[i]) {
		class = idem.ErrTooLarge
	}
	c.errs[i] = fmt.Errorf("%w: %w", class, c.errs[i])
}

// lookUpAgain separates topics that are gone from brokers that are down. A partition may be unknown
// for a moment while it moves. After several failures, sarama returns only that error for some
// seconds. So the brokers are asked for the topic.
func (c *call) lookUpAgain(ctx context.Context, indexes []int) {
	byTopic := make(map[string][]int)
	for _, i := range indexes {
		switch err := c.errs[i]; {
		case err == nil,
			isAny(err, idem.ErrTooLarge, idem.ErrRefused, idem.ErrNoTopic, errNotSent, errNoAnswer):
		case isAny(err, sarama.ErrTopicAuthorizationFailed, sarama.ErrInvalidTopic):
			c.errs[i] = fmt.Errorf("%w: %w", idem.ErrNoTopic, err)
		default:
			byTopic[c.msgs[i].Topic] = append(byTopic[c.msgs[i].Topic], i)
		}
	}
	if len(byTopic) == 0 {
		return
	}
	answers, asked := c.s.ask(byTopic, nil)
	if !asked {
		return
	}
	for range byTopic {
		select {
		case a := <-answers:
			if errors.Is(a.err, idem.ErrNoTopic) {
				for _, i := range byTopic[a.topic] {
					c.errs[i] = lookedUp(c.errs[i], a.err)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// lookedUp returns the error of a message that has failed, when its topic cannot be used now. A topic
// that is missing has no record. A topic that is denied may have the record of an attempt without
// an answer. The error has only the text of the denial then.
func lookedUp(failed, topic error) error {
	if !errors.Is(topic, sarama.ErrTopicAuthorizationFailed) {
		return topic
	}
	return fmt.Errorf("may be in the log: %s, and then the topic was denied (%s): %w",
		idem.ErrorText(failed), idem.ErrorText(topic), errNoAnswer)
}

func (c *call) set(indexes []int, err error) {
	for _, i := range indexes {
		c.errs[i] = err
	}
}

// cut sets the cause of ctx as the error of messages without a result.
func (c *call) cut(ctx context.Context, indexes []int) {
	silent := c.s.away != nil && errors.Is(context.Cause(ctx), errBrokersSilent)
	for _, i := range indexes {
		if silent && c.errs[i] == errNoAnswer { //nolint:errorlint // as below
			topic := c.msgs[i].Topic
			c.s.away.noteSilence(ToSarama(c.msgs[i]), c.s.topics.partitions(topic))
		}
		err := c.errs[i]
		if err == errNotSent || err == errNoAnswer { //nolint:errorlint // else it has a cause
			c.errs[i] = fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}
