package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

const (
	// orderedAttempts bounds how often a batch is sent. The pauses between are orderedPause, twice
	// that, and so on.
	orderedAttempts = 5
	// unsentAttempts bounds the attempts of a batch for a partition without a leader.
	unsentAttempts = 2
	orderedPause   = 50 * time.Millisecond
	// orderedWait bounds the time after which a batch is not sent again.
	orderedWait = 5 * time.Second
	// askWait bounds the wait for a producer ID, and the wait for an answer about a topic. The
	// broker that is asked may be silent.
	askWait = 2 * time.Second
)

var (
	errBehindFailed = errors.New("not sent: it is behind a message that failed")
	errOldBrokers   = errors.New("the configured version of Kafka has no record batches")
	errOnlyEach     = errors.New("interceptors and transactions need sarama's own producer")
)

// inOrder is the state of ProduceInOrder. The call that holds turn uses it.
//
// All messages of a call for one partition form a record batch, which a broker appends as a whole
// or not at all. Larger calls have several batches for a partition, and each waits for the
// acknowledgement of the one before. So a message is in the log only behind all earlier messages of
// the call for its partition.
//
// A batch without an answer is sent again with the same sequence number, and the broker appends it
// once. If the answer stays away, the batch may be appended at any later time. Its number must not
// serve another batch then, because the broker would take that batch for a copy. So the ID ends for
// the partition. The next call for the partition takes another ID.
type inOrder struct {
	s            *sender
	turn         chan struct{} // has room for one
	partitioners *partitioners
	id           *producerID   // nil: the next call asks for one
	asked        chan idAnswer // the question under way, if any
}

func newInOrder(s *sender) inOrder {
	return inOrder{
		s: s, turn: make(chan struct{}, 1), partitioners: newPartitioners(s.client.Config()),
	}
}

// orderedCall is one call of ProduceInOrder.
type orderedCall struct {
	*inOrder
	msgs   []*sarama.ProducerMessage
	sizes  []int
	errs   []error
	queues map[partition][]*orderedBatch // the first one of each is sent
	began  time.Time
}

// publish sends the messages and returns an error for each.
func (o *inOrder) publish(ctx context.Context, msgs []*idem.Message) []error {
	c := &orderedCall{
		inOrder: o, msgs: make([]*sarama.ProducerMessage, len(msgs)), sizes: make([]int, len(msgs)),
		errs: make([]error, len(msgs)), queues: map[partition][]*orderedBatch{}, began: time.Now(),
	}
	for i, m := range msgs {
		const recordBatchV2 = 2
		c.msgs[i], c.errs[i] = ToSarama(m), errNotSent
		c.sizes[i] = c.msgs[i].ByteSize(recordBatchV2)
	}
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return c.fail(fmt.Errorf("%w: %w", errNotSent, context.Cause(ctx)))
	}
	if err := c.prepare(ctx); err != nil {
		return c.fail(err)
	}
	for pauses := 0; len(c.queues) > 0; {
		again, err := c.round(ctx)
		switch {
		case err != nil:
			c.endID() // batches of the round may still be appended
			c.noteSilence(err)
			c.fail(err)
			clear(c.queues)
		case again:
			pause(ctx, orderedPause<<pauses)
			pauses = min(pauses+1, orderedAttempts)
		}
	}
	return c.errs
}

// endID ends the producer ID for the partitions that have batches without a result.
func (c *orderedCall) endID() {
	for at := range c.queues {
		c.id.ended[at] = true
	}
}

// fail sets err as the error of all messages that have no result.
func (c *orderedCall) fail(err error) []error {
	for i, e := range c.errs {
		if e == errNotSent { //nolint:errorlint // the value itself means that there is no result
			c.errs[i] = err
		}
	}
	return c.errs
}

// noteSilence notes the partitions with a leader that had not answered when the call gave up.
func (c *orderedCall) noteSilence(err error) {
	if c.s.away == nil || !errors.Is(err, errBrokersSilent) {
		return
	}
	for _, queue := range c.queues {
		if b := queue[0]; b.waits.Load() {
			c.noteAway(b)
		}
	}
}

// noteAway notes that the partition of a batch takes no records. It does so only if a later message
// with a key can find out that the partition is back.
func (c *orderedCall) noteAway(b *orderedBatch) {
	if c.s.away == nil {
		return
	}
	for _, i := range b.indexes {
		if c.msgs[i].Key != nil {
			c.s.away.noteSilence(c.msgs[i], c.s.topics.partitions(b.at.topic))
			return
		}
	}
}

// prepare makes the batches, and gets a producer ID for them.
func (c *orderedCall) prepare(ctx context.Context) error {
	conf := c.s.client.Config()
	switch {
	case !conf.Version.IsAtLeast(sarama.V0_11_0_0):
		return errOldBrokers
	case len(conf.Producer.Interceptors) > 0 || conf.Producer.Transaction.ID != "":
		return errOnlyEach
	}
	if err := c.fill(ctx); err != nil {
		return err
	}
	if len(c.queues) == 0 {
		return nil
	}
	return c.takeProducerID(ctx)
}

// takeProducerID asks the brokers for a producer ID, unless the present one serves all partitions
// of the call. A question without an answer in time stays, and the next call takes its answer.
func (c *orderedCall) takeProducerID(ctx context.Context) error {
	o := c.inOrder
	if o.id != nil && o.id.serves(maps.Keys(c.queues)) {
		return nil
	}
	if o.asked == nil {
		answers := make(chan idAnswer, 1)
		if !c.s.start(func() { answers <- askProducerID(c.s.client) }) {
			return errClosed
		}
		o.asked = answers
	}
	patience := time.NewTimer(askWait)
	defer patience.Stop()
	select {
	case a := <-o.asked:
		o.asked, o.id = nil, a.id
		return a.err
	case <-patience.C:
		return fmt.Errorf("%w: producer ID: %w", errNotSent, errBrokersSilent)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotSent, context.Cause(ctx))
	}
}

// fill makes the batches of all messages to partitions that can be used.
func (c *orderedCall) fill(ctx context.Context) error {
	topics, err := c.lookUp(ctx)
	if err != nil {
		return err
	}
	indexes := map[partition][]int{}
	failed := map[partition]bool{} // also the later messages for these are not sent
	keys := map[messageKey]partition{}
	for i, m := range c.msgs {
		topic := topics[m.Topic]
		if topic.err != nil {
			c.errs[i] = topic.err
			continue
		}
		at, err := c.choose(m, topic)
		if err != nil {
			topic.err = err
			c.errs[i], topics[m.Topic] = err, topic
			continue
		}
		ordered := onePartition(keys, m, at)
		switch {
		case failed[at] || !ordered:
			c.errs[i] = errBehindFailed
			continue
		case isTooOld(m.Timestamp):
			c.errs[i] = errTooOld
		case c.sizes[i] > c.s.max:
			c.errs[i] = c.s.tooLargeAt(c.sizes[i])
		case c.s.away != nil && c.s.away.holds(at):
			c.errs[i] = fmt.Errorf("%w: %w", errNotSent, errPartitionAway)
		default:
			indexes[at] = append(indexes[at], i)
			continue
		}
		failed[at] = true
	}
	for at, list := range indexes {
		c.queues[at] = batchesOf(at, list, c.sizes)
	}
	return nil
}

// choose returns the partition of a message for a topic that was found.
func (c *orderedCall) choose(m *sarama.ProducerMessage, topic topicAnswer) (partition, error) {
	if _, consistent := c.partitioners.of(m); consistent {
		return c.partitioners.choose(m, topic.all)
	}
	return c.partitioners.choose(m, topic.writable)
}

// messageKey is a topic and key.
type messageKey struct{ topic, key string }

// onePartition reports whether a message has the partition of the earlier messages with its key. A
// partitioner of the user, or new partitions, can give a key several partitions, and order is kept
// within one only. The later messages of such a key have no partition.
func onePartition(
	keys map[messageKey]partition, m *sarama.ProducerMessage, at partition,
) bool {
	if m.Key == nil {
		return true
	}
	id := messageKey{m.Topic, string(bytesOf(m.Key))}
	first, ok := keys[id]
	if !ok {
		keys[id], first = at, at
	}
	if first != at {
		keys[id] = partition{m.Topic, -1}
	}
	return first == at
}

// lookUp returns the answer for each topic. A topic without an answer in time has an error.
func (c *orderedCall) lookUp(ctx context.Context) (map[string]topicAnswer, error) {
	topics, writable := map[string][]int{}, map[string][]int{}
	for _, m := range c.msgs {
		topics[m.Topic] = nil
		if _, consistent := c.partitioners.of(m); !consistent {
			writable[m.Topic] = nil
		}
	}
	answers, asked := c.s.ask(topics, writable)
	if !asked {
		return nil, errClosed
	}
	found := make(map[string]topicAnswer, len(topics))
	patience := time.NewTimer(askWait)
	defer patience.Stop()
	for waits := true; waits && len(found) < len(topics); {
		select {
		case a := <-answers:
			found[a.topic] = a
		case <-patience.C:
			waits = false
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errNotSent, context.Cause(ctx))
		}
	}
	for topic := range topics {
		if _, ok := found[topic]; !ok {
			err := fmt.Errorf("%w: topic %q: %w", errNotSent, topic, errTopicUnknown)
			found[topic] = topicAnswer{topic: topic, err: err}
		}
	}
	return found, nil
}

// round sends the first batch of each partition and judges the answers. again reports that a batch
// has to be sent again after a pause. After an error, batches have no answer.
func (c *orderedCall) round(ctx context.Context) (again bool, err error) {
	if ctx.Err() != nil {
		return false, fmt.Errorf("%w: %w", errNoAnswer, context.Cause(ctx))
	}
	batches := make([]*orderedBatch, 0, len(c.queues))
	for _, queue := range c.queues {
		batches = append(batches, queue[0])
	}
	answers := make(chan batchAnswer, len(batches)) // an answer never waits
	if !c.s.sendBatches(c.id, batches, c.msgs, answers) {
		return false, errClosed
	}
	for range batches {
		select {
		case a := <-answers:
			again = c.judge(a) || again
		case <-ctx.Done():
			return false, fmt.Errorf("%w: %w", errNoAnswer, context.Cause(ctx))
		}
	}
	return again, nil
}

// judge carries out the verdict about the first batch of a partition. again reports that the same
// batch has to be sent again.
func (c *orderedCall) judge(a batchAnswer) (again bool) {
	b, err := a.batch, a.err
	queue := c.queues[b.at][1:]
	b.attempts++
	b.waits.Store(false)
	b.unknown = b.unknown || !a.unsent && verdictOf(err) == batchUnknown
	switch verdict := verdictOf(err); {
	case verdict == batchAppended:
		for _, i := range b.indexes {
			c.errs[i] = nil
		}
		c.id.next[b.at] += int32(len(b.indexes))
	case verdict == batchUnknown && b.attempts < attemptsOf(a) &&
		time.Since(c.began) < orderedWait:
		return true
	case verdict == batchTooLarge && len(b.indexes) > 1 && !b.unknown:
		first, second := b.split()
		queue = append([]*orderedBatch{first, second}, queue...)
	default:
		for _, i := range b.indexes {
			c.errs[i] = err
		}
		for _, later := range queue {
			for _, i := range later.indexes {
				c.errs[i] = errBehindFailed
			}
		}
		queue = nil
		if verdict == batchUnknown {
			c.noteAway(b)
		}
		if b.unknown || verdict == batchUnordered {
			c.id.ended[b.at] = true
		}
	}
	if len(queue) == 0 {
		delete(c.queues, b.at)
	} else {
		c.queues[b.at] = queue
	}
	return false
}

// attemptsOf bounds the attempts of a batch. Without a leader each one asks the brokers for a
// while.
func attemptsOf(a batchAnswer) int {
	if a.unsent {
		return unsentAttempts
	}
	return orderedAttempts
}

// pause waits, until ctx ends at the latest.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
