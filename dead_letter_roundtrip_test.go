package idem_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// newSeed returns the source of all that is random in a test, and its seed: that of IDEM_SEED if it
// is set.
func newSeed(t testing.TB) (*rand.Rand, uint64) {
	t.Helper()
	seed := rand.Uint64() >> 32 // short enough to be typed
	if s := os.Getenv("IDEM_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "IDEM_SEED")
	}
	t.Logf("repeat with IDEM_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0)), seed
}

// soak chooses between a number for CI and one for a long run (IDEM_SOAK).
func soak(short, long int) int {
	if os.Getenv("IDEM_SOAK") != "" {
		return long
	}
	return short
}

// foreign are names of headers that a producer may have used for its own ends, ours among them.
// Only names that begin with idem-original-idem- are left out: they look like the headers that a
// dead letter renames.
var foreign = []string{
	"", "h", "h", "H", "trace", "idem-", "idem-x", "idem-X", "idem", "IDEM-error", "idem-original", "idem-original-",
	"idem-original-x", "idem-original-idem", deadletter.HeaderTopic, deadletter.HeaderPartition, deadletter.HeaderOffset, deadletter.HeaderTime, deadletter.HeaderGroup,
	deadletter.HeaderScope, deadletter.HeaderTenant, deadletter.HeaderEventID, deadletter.HeaderEventType, deadletter.HeaderAttempts, deadletter.HeaderErrorClass,
	deadletter.HeaderError, deadletter.HeaderFirstFailure, deadletter.HeaderValueOmitted, deadletter.HeaderHeadersOmitted, deadletter.HeaderGeneration,
	deadletter.HeaderRetry, deadletter.HeaderDue, deadletter.HeaderNotBefore, "ключ", "\xff\x00",
}

// oddTimes are times that a record may have. Kafka keeps any number of milliseconds from a
// producer.
var oddTimes = []time.Time{
	time.UnixMilli(0), time.UnixMilli(1), time.UnixMilli(-1), time.UnixMilli(999), time.UnixMilli(253402300799999), // the end of the year 9999
	time.UnixMilli(253402300800000), time.UnixMilli(1_767_323_045_000_000), // a producer that counts microseconds
	time.UnixMilli(math.MaxInt64 / 1_000_000), {},
}

// hostile makes a record out of all allowed values: nil, empty, any bytes, header names of Idem,
// and repeated names.
func hostile(rng *rand.Rand, offset int64) *idem.Message {
	bytes := func() []byte {
		switch rng.IntN(5) {
		case 0:
			return nil
		case 1:
			return []byte{}
		}
		b := make([]byte, []int{1, 9, 300}[rng.IntN(3)])
		for i := range b {
			b[i] = byte(rng.UintN(256))
		}
		return b
	}
	m := &idem.Message{
		Topic: "orders", Partition: rng.Int32N(3), Offset: offset, Key: bytes(), Value: bytes(),
		Time: time.UnixMilli(1_767_323_045_000 + rng.Int64N(1e9)),
	}
	if rng.IntN(3) == 0 {
		m.Time = oddTimes[rng.IntN(len(oddTimes))]
	}
	for range rng.IntN(6) {
		m.Headers = append(m.Headers, idem.Header{Key: foreign[rng.IntN(len(foreign))], Value: bytes()})
	}
	for range []int{0, 1, 1, 1, 2}[rng.IntN(5)] { // two are one too many
		at := rng.IntN(len(m.Headers) + 1)
		h := idem.Header{Key: "event-id", Value: fmt.Appendf(nil, "%d-%d", offset, rng.Int())}
		m.Headers = append(m.Headers[:at:at], append([]idem.Header{h}, m.Headers[at:]...)...)
	}
	return m
}

// newGivingUp is a processor that dead-letters every event, with its written dead letters.
func newGivingUp(t *testing.T) *bench {
	b := newBench(t)
	r := idem.NewRouter(idem.Type(idem.Fixed("paid")), idem.ID(idem.FromHeader("event-id")), idem.Tombstones(),
		idem.Decode(func(*idem.Message, any) error { return nil }))
	b.router = r
	idem.On(r, "paid", func(context.Context, idem.Event[payload]) error { return idem.Permanent(errBoom) })
	b.start()
	t.Cleanup(func() { require.NoError(t, b.p.Close()) })
	return b
}

// giveUp settles m and returns the one dead letter that comes of it.
func (b *bench) giveUp(m *idem.Message) *idem.Message {
	b.t.Helper()
	b.sent.mu.Lock()
	b.sent.msgs = nil
	b.sent.mu.Unlock()
	require.NoError(b.t, b.p.Handle(b.t.Context(), m))
	letters := b.sent.deadLetters()
	require.Len(b.t, letters, 1)
	return letters[0]
}

// requireSame compares byte for byte, nil and empty apart. A time is the same moment, to the
// millisecond of Kafka.
func requireSame(t testing.TB, want, got *idem.Message) {
	t.Helper()
	require.True(t, want.Time.Equal(got.Time), "time %s, was %s", got.Time, want.Time)
	require.Equal(t, []any{want.Topic, want.Partition, want.Offset}, []any{got.Topic, got.Partition, got.Offset})
	require.Equal(t, []any{want.Key, want.Value}, []any{got.Key, got.Value}, "key and value")
	require.Equal(t, want.Headers, got.Headers)
}

// clone is m with bytes of its own, so that later changes of m do not change it.
func clone(m *idem.Message) *idem.Message {
	c := *m
	own := func(b []byte) []byte { return append(b[:0:0], b...) } // nil stays nil and empty stays empty
	c.Key, c.Value, c.Headers = own(m.Key), own(m.Value), nil
	for _, h := range m.Headers {
		c.Headers = append(c.Headers, idem.Header{Key: h.Key, Value: own(h.Value)})
	}
	return &c
}

// T-09: the dead letter of a record gives every record back byte for byte. So does the copy that a
// redrive makes of the dead letter, and the dead letter of that copy.
func TestDeadLetters_RoundTrip_T09(t *testing.T) {
	n := soak(500, 10_000)
	rng, seed := newSeed(t)
	b := newGivingUp(t)
	classes := map[idem.Class]int{}
	for i := range n {
		m := hostile(rng, int64(i))
		want := clone(m)
		letter := b.giveUp(m)
		requireSame(t, want, m) // the delivered message is not written to
		l, err := deadletter.Parse(letter)
		require.NoError(t, err, "record %d: %+v", i, want)
		requireSame(t, want, l.Message)
		require.False(t, l.Omitted)
		classes[l.Class]++

		redriven, err := l.Redrive(b.reopen(l))
		require.NoError(t, err)
		again, err := deadletter.Parse(redriven)
		require.NoError(t, err)
		requireSame(t, want, again.Message)

		last, err := deadletter.Parse(b.giveUp(redriven))
		require.NoError(t, err)
		requireSame(t, want, last.Message)
		require.Equal(t, l.Class, last.Class)
	}
	t.Logf("soak: TestLetters_RoundTrip_T09 seed=%d size=%d kills=0 cuts=0 rebalances=0 outcome=all as they were %v", seed, n, classes)
	require.Len(t, classes, 3, "with an identity, with none, with two: %v", classes)
}

// reopen lets the event of a dead letter run again, if it has an identity.
func (b *bench) reopen(l *deadletter.Event) dedup.Position {
	b.t.Helper()
	if l.Key.ID == "" {
		return dedup.Position{}
	}
	p, err := b.store.Reopen(b.t.Context(), l.Key)
	require.NoError(b.t, err)
	return p
}

// size counts the bytes of a record but for the numbers of its generation and its replays, which
// have more digits from the tenth on.
func size(m *idem.Message) int {
	n := len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		if h.Key != deadletter.HeaderGeneration && h.Key != deadletter.HeaderReplays {
			n += len(h.Key) + len(h.Value)
		}
	}
	return n
}

// T-04: fifty redrives of a dead letter leave its size as it was, and its record.
func TestDeadLetters_FiftyRedrives_T04(t *testing.T) {
	const rounds = 50
	n := soak(20, 400)
	rng, seed := newSeed(t)
	b := newGivingUp(t)
	for i := range n {
		m := hostile(rng, int64(i))
		want := clone(m)
		letter := b.giveUp(m)
		first := size(letter)
		for round := range rounds {
			l, err := deadletter.Parse(letter)
			require.NoError(t, err)
			copied, err := l.Redrive(b.reopen(l))
			require.NoError(t, err)
			copied.Partition, copied.Offset = rng.Int32N(9), rng.Int64() // where the broker put it
			letter = b.giveUp(copied)
			require.Equal(t, first, size(letter), "round %d of %+v: %+v", round, want, letter)
		}
		l, err := deadletter.Parse(letter)
		require.NoError(t, err)
		requireSame(t, want, l.Message)
	}
	t.Logf("soak: TestLetters_FiftyRedrives_T04 seed=%d size=%d kills=0 cuts=0 rebalances=0 outcome=same size after %d redrives", seed, n, rounds)
}

// T-04: a record of the largest size becomes a dead letter, or a dead letter without the value.
// Such a dead letter can be read, and shows that there is no value to redrive.
func TestDeadLetters_AsLargeAsCanBe_T04(t *testing.T) {
	const limit = 1 << 20
	for over, omitted := range map[int]bool{100: true, 2000: false} {
		b := newGivingUp(t)
		b.sent.fail = func(m *idem.Message) error {
			if size(m) > limit {
				return idem.ErrTooLarge
			}
			return nil
		}
		m := &idem.Message{Topic: "orders", Offset: 7, Key: []byte("k"), Value: []byte(strings.Repeat("x", limit-over)), Time: time.UnixMilli(1)}
		l, err := deadletter.Parse(b.giveUp(m))
		require.NoError(t, err)
		require.Equal(t, omitted, l.Omitted)
		if !omitted {
			requireSame(t, m, l.Message)
			continue
		}
		require.Equal(t, []any{"orders", int64(7), []byte("k")}, []any{l.Message.Topic, l.Message.Offset, l.Message.Key})
		_, err = l.Redrive(dedup.Position{})
		require.ErrorContains(t, err, "orders/0/7")
	}
}
