package consumer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// fate travels with a message through sarama and back.
type fate struct {
	index   int
	weight  int // of room
	results chan<- result
	probe   bool // it asks whether its partition is back
}

type result struct {
	index int
	err   error
}

// aloneWait bounds how long a call waits until nothing else is under way, so that a message can be sent alone.
const aloneWait = 5 * time.Second

// ProduceEach publishes msgs and returns an error for each, nil exactly for those that all in-sync replicas have
// acknowledged (O-08). The order of messages of one topic and key is kept, unless one of them fails: those behind it may
// then be in the log without it.
//
// An error that matches one of these says that this message is to blame, and that it is not in the log:
//   - [idem.ErrTooLarge]: the broker takes no batch with it, though it was alone in it, or sarama does not.
//   - [idem.ErrRefused]: the broker does not take it as it is, alone in its batch, such as for its time.
//   - [idem.ErrNoTopic]: its topic is missing, has no such name, or must not be written to. Brokers are asked for a topic
//     that was not used yet for as long as Metadata.Retry of sarama says, 0.3 s with [OpenProducer]: one that was made a
//     moment ago is known to all by then. Messages to other topics are sent meanwhile.
//
// Any other error says that the brokers are to blame, and nothing of whether the message is in the log: sent again, it may be
// there twice.
//
// With OpenProducer, one partition that is away holds up messages for others once, until sarama gives up. From then on it is asked with one
// message at a time, which is waited for a second; others for it fail at once, until it has taken one.
//
// It returns when all fates are known, or when ctx ends, with OpenProducer after 30 s at the latest. Messages without answer then have an
// error that wraps the cause; sarama goes on with those that it was given until it gives up, which is a matter of minutes if a
// broker is silent. Of these and of all that is under way no more than 32 MiB are held; what comes beyond that waits in its call.
func (p *Producer) ProduceEach(ctx context.Context, msgs []*idem.Message) []error {
	if p.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, p.patience, errPatience)
		defer cancel()
	}
	c := &call{p: p, msgs: msgs, errs: make([]error, len(msgs)), results: make(chan result, len(msgs))}
	var all []int
	for i, m := range msgs {
		if c.errs[i] = p.tooLarge(m); c.errs[i] == nil {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		return c.errs
	}
	for part := range c.parts(all) {
		c.sendByTopic(ctx, part)
	}
	c.sendAlone(ctx, c.failed(all, isBatchVerdict))
	c.askAgain(ctx, all)
	return c.errs
}

// call is one ProduceEach. Only its own goroutine touches it.
type call struct {
	p       *Producer
	msgs    []*idem.Message
	errs    []error
	results chan result // nobody who sends one ever waits
}

// maxTogether bounds, in bytes, what is given to sarama before the results are waited for. sarama makes one batch of what it has for a partition, of
// any size up to Producer.MaxMessageBytes, which must let the largest message through; a broker takes 1 MB by default. A batch that
// is refused costs more than a round trip: its messages are halved until it is known which of them is to blame.
const maxTogether = 900_000

// parts yields indexes so that together the messages of each part are no larger than that, or are one.
func (c *call) parts(indexes []int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		first, size := 0, 0
		for n, i := range indexes {
			weight := sizeOf(c.msgs[i])
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

// What has become of a message when ctx ends.
var (
	errNotSent  = errors.New("not sent")
	errNoAnswer = errors.New("sent, no answer yet")
	errPatience = errors.New("brokers do not answer")
)

// isBatchVerdict reports whether the broker has refused a batch. sarama puts what is sent at the same time into one batch, and
// a broker looks at batches: the verdict may be about another message of it.
func isBatchVerdict(err error) bool { return isTooLarge(err) || isRefused(err) }

func (c *call) failed(indexes []int, test func(error) bool) (some []int) {
	for _, i := range indexes {
		if err := c.errs[i]; err != nil && test(err) {
			some = append(some, i)
		}
	}
	return some
}

// sendByTopic sends what has a topic, each topic as soon as it is known to be there, and waits for the results.
func (c *call) sendByTopic(ctx context.Context, indexes []int) {
	byTopic := make(map[string][]int)
	for _, i := range indexes {
		c.errs[i] = errNotSent
		byTopic[c.msgs[i].Topic] = append(byTopic[c.msgs[i].Topic], i)
	}
	answers, asked := c.p.ask(byTopic)
	if !asked {
		c.set(indexes, errProducerClosed)
		return
	}
	topics, underWay, held := len(byTopic), 0, newHeldBack(c)
	defer held.stop()
	for topics > 0 || underWay > 0 || len(held.asking) > 0 {
		select {
		case a := <-answers:
			topics--
			if a.err == nil {
				underWay += c.send(ctx, held.split(ctx, byTopic[a.topic]), false)
			} else {
				c.set(byTopic[a.topic], a.err)
			}
		case r := <-held.results:
			underWay += c.send(ctx, held.answered(r), false)
		case <-held.over:
			held.giveUp()
		case r := <-c.results:
			underWay--
			c.errs[r.index] = r.err
		case <-ctx.Done():
			c.cut(ctx, indexes)
			return
		}
	}
}

// send gives messages to sarama, and returns how many.
func (c *call) send(ctx context.Context, indexes []int, alone bool) (sent int) {
	for _, i := range indexes {
		f := &fate{index: i, weight: weightOf(c.msgs[i]), results: c.results}
		err := c.p.room.take(ctx, f.weight, alone)
		if err == nil {
			if err = c.p.enqueue(ctx, c.msgs[i], f); err != nil {
				c.p.room.give(f.weight)
			}
		}
		if err != nil {
			c.errs[i] = fmt.Errorf("%w: %w", errNotSent, err)
			continue // it fails in the same way for the rest, which then is said of each
		}
		c.errs[i] = errNoAnswer
		sent++
	}
	return sent
}

// sendAlone finds out which messages are refused whatever they share their batch with: groups that nobody else's messages mix
// with are halved until that is known of each.
func (c *call) sendAlone(ctx context.Context, indexes []int) {
	if len(indexes) == 0 {
		return
	}
	if err := c.p.room.lock(ctx, aloneWait); err != nil {
		for _, i := range indexes { // the verdict of the batch is not the message's: its text only
			verdict := idem.ErrorText(c.errs[i])
			c.errs[i] = fmt.Errorf("refused in a batch (%s), and could not be sent alone: %w", verdict, err)
		}
		return
	}
	defer c.p.room.unlock()
	for groups := [][]int{indexes}; len(groups) > 0; {
		group := groups[len(groups)-1]
		groups = groups[:len(groups)-1]
		if !c.sendGroup(ctx, group) {
			for _, rest := range groups {
				for _, i := range rest {
					c.errs[i] = errNotSent
				}
				c.cut(ctx, rest)
			}
			return
		}
		bad := c.failed(group, isBatchVerdict)
		switch {
		case len(group) == 1 && len(bad) == 1:
			c.condemn(group[0])
		case len(bad) == 1:
			groups = append(groups, bad)
		case len(bad) > 1:
			groups = append(groups, bad[len(bad)/2:], bad[:len(bad)/2]) // the first ones are next, for their order
		}
	}
}

// sendGroup sends and waits for the results. It reports false if ctx has ended before.
func (c *call) sendGroup(ctx context.Context, group []int) bool {
	for underWay := c.send(ctx, group, true); underWay > 0; underWay-- {
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

// condemn gives the error of a message that was alone its class.
func (c *call) condemn(i int) {
	class := idem.ErrRefused
	if isTooLarge(c.errs[i]) {
		class = idem.ErrTooLarge
	}
	c.errs[i] = fmt.Errorf("%w: %w", class, c.errs[i])
}

// askAgain tells topics that are gone from brokers that are away. A partition may be unknown for a moment while it moves, and sarama, when
// a topic has failed several times, says nothing but that for some seconds: what the brokers know of the topic decides.
func (c *call) askAgain(ctx context.Context, indexes []int) {
	byTopic := make(map[string][]int)
	for _, i := range indexes {
		switch err := c.errs[i]; {
		case err == nil, isAny(err, idem.ErrTooLarge, idem.ErrRefused, idem.ErrNoTopic, errNotSent, errNoAnswer):
		case isAny(err, sarama.ErrTopicAuthorizationFailed, sarama.ErrInvalidTopic):
			c.errs[i] = fmt.Errorf("%w: %w", idem.ErrNoTopic, err)
		default:
			byTopic[c.msgs[i].Topic] = append(byTopic[c.msgs[i].Topic], i)
		}
	}
	if len(byTopic) == 0 {
		return
	}
	answers, asked := c.p.ask(byTopic)
	if !asked {
		return
	}
	for range byTopic {
		select {
		case a := <-answers:
			if errors.Is(a.err, idem.ErrNoTopic) {
				c.set(byTopic[a.topic], a.err)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (c *call) set(indexes []int, err error) {
	for _, i := range indexes {
		c.errs[i] = err
	}
}

// cut says of messages without result why there is none.
func (c *call) cut(ctx context.Context, indexes []int) {
	silent := c.p.away != nil && errors.Is(context.Cause(ctx), errPatience)
	for _, i := range indexes {
		if silent && c.errs[i] == errNoAnswer { //nolint:errorlint // as below
			c.p.away.silent(toSarama(c.msgs[i]))
		}
		if err := c.errs[i]; err == errNotSent || err == errNoAnswer { //nolint:errorlint // not those that say why already
			c.errs[i] = fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}
