package outbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

// Relays against a model, with crashes, pauses, failures and late answers. No event is lost. The
// first appearances of an aggregate are in the order of their commits. No event is published behind
// one that was parked under Halt. Only rows that are to blame are parked (O-01, O-04, O-07 to O-10,
// O-13, O-15).
func TestRelay_Random(t *testing.T) {
	seed := rand.Uint64() >> 32
	if s := os.Getenv("IDEM_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("IDEM_SEED=%d", seed)
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	var again, takenOver int
	for round := range rounds {
		if !t.Run(strconv.Itoa(round), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				w := newWorld(b, rand.New(rand.NewPCG(seed, uint64(round))))
				w.run()
				again += w.again
				takenOver += b.log.count("taken over by another relay")
			})
		}) {
			return
		}
	}
	t.Logf("%d events were published again, shards were lost %d times", again, takenOver)
	require.Positive(t, again, "the test did not disturb anything")
	if !testing.Short() {
		require.Positive(t, takenOver, "the test did not disturb anything")
	}
}

// world is the environment of a random test.
type world struct {
	*bench
	rnd      *rand.Rand
	when     outbox.WhenParked
	batch    int
	lease    time.Duration
	calm     atomic.Bool // calls do not fail any longer
	noStore  atomic.Int64
	noBroker atomic.Int64 // until when, in ns of the epoch
	again    int

	mu     sync.Mutex
	tries  map[string]int // of events for a topic that is missing at first
	living []*process
	late   sync.WaitGroup
}

// process runs a relay. It can die or pause.
type process struct {
	w      *world
	relay  *running
	dead   atomic.Bool
	frozen atomic.Int64

	mu  sync.Mutex
	rnd *rand.Rand
}

func newWorld(b *bench, rnd *rand.Rand) *world {
	w := &world{
		bench: b, rnd: rnd, when: outbox.WhenParked(rnd.IntN(2)), batch: 1 + rnd.IntN(100),
		lease: time.Duration(2+rnd.IntN(10)) * time.Second, tries: map[string]int{},
	}
	b.t.Logf("%s, batch %d, lease %s", w.when, w.batch, w.lease)
	return w
}

func (w *world) run() {
	var writers sync.WaitGroup
	for a := range 1 + w.rnd.IntN(40) {
		key := fmt.Sprint("k", a)
		if a%10 == 9 {
			key = ""
		}
		rnd := w.source()
		writers.Go(func() { w.write(key, fmt.Sprint("k", a, "-"), rnd) })
	}
	for range 1 + w.rnd.IntN(4) {
		w.startProcess()
	}
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(time.Duration(w.rnd.IntN(8000)) * time.Millisecond) {
		w.disturb()
	}
	writers.Wait()
	w.calm.Store(true)
	w.drained(15 * time.Minute)
	w.stop()
	w.late.Wait()
	w.check()
}

func (w *world) source() *rand.Rand { return rand.New(rand.NewPCG(w.rnd.Uint64(), 0)) }

// write commits the events of one aggregate one after another. Those of others, with higher
// numbers, become visible before.
func (w *world) write(key, prefix string, rnd *rand.Rand) {
	for i := range 5 + rnd.IntN(30) {
		time.Sleep(time.Duration(rnd.IntN(5000)) * time.Millisecond)
		id := fmt.Sprintf("%s%02d", prefix, i)
		switch rnd.IntN(100) {
		case 0:
			id += "!size"
		case 1:
			id += "!refused"
		case 2:
			id += "!topic"
		case 3, 4:
			id += "?topic"
		}
		seq := w.table.draw()
		time.Sleep(time.Duration(rnd.IntN(1+rnd.IntN(3000))) * time.Millisecond)
		w.table.commit(seq, outbox.Entry{Topic: "t", Key: key, ID: id, Type: "test", Payload: []byte("secret")})
	}
}

func (w *world) startProcess() {
	p := &process{w: w, rnd: w.source()}
	p.relay = w.start(func(c *outbox.RelayConfig, f *faults) {
		c.WhenParked, c.Batch, c.Lease = w.when, w.batch, w.lease
		prod := c.Producer.(*producer)
		prod.fate, prod.gate = p.fate, p.thaw
		if p.rnd.IntN(3) > 0 {
			c.Producer = &orderedProducer{producer: prod, late: p.later}
		}
		f.Store = &lateStore{Store: w.table, p: p}
		f.before = p.before
		f.after = p.after
	})
	w.living = append(w.living, p)
}

func (w *world) disturb() {
	i := w.rnd.IntN(len(w.living))
	p := w.living[i]
	switch w.rnd.IntN(6) {
	case 0, 1:
		p.dead.Store(w.rnd.IntN(3) > 0) // or it leaves in order
		p.relay.cancel()
		w.living = append(w.living[:i:i], w.living[i+1:]...)
		time.Sleep(time.Duration(w.rnd.IntN(5000)) * time.Millisecond)
		w.startProcess()
	case 2, 3:
		p.frozen.Store(time.Now().Add(w.lease/2 + time.Duration(w.rnd.Int64N(int64(3*w.lease)))).UnixNano())
	case 4:
		w.noStore.Store(time.Now().Add(time.Duration(w.rnd.IntN(20)) * time.Second).UnixNano())
	case 5:
		w.noBroker.Store(time.Now().Add(time.Duration(w.rnd.IntN(30)) * time.Second).UnixNano())
	}
}

func before(until *atomic.Int64) bool { return time.Now().UnixNano() < until.Load() }

// thaw waits while the process pauses.
func (p *process) thaw() {
	for before(&p.frozen) {
		time.Sleep(time.Until(time.Unix(0, p.frozen.Load())))
	}
}

// dice returns a number below n, and how long something takes.
func (p *process) dice(n int) (int, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rnd.IntN(n), time.Duration(p.rnd.IntN(3000)) * time.Microsecond
}

func (p *process) before(ctx context.Context, _ string) error {
	fails, took := p.dice(100)
	time.Sleep(took)
	p.thaw()
	switch {
	case p.dead.Load() || before(&p.w.noStore) || (fails < 2 && !p.w.calm.Load()):
		return errDatabase
	default:
		return ctx.Err()
	}
}

func (p *process) after(ctx context.Context, _ string) error {
	fails, took := p.dice(100)
	time.Sleep(took)
	p.thaw()
	if p.dead.Load() || (fails < 2 && !p.w.calm.Load()) {
		return errDatabase
	}
	return ctx.Err()
}

// later is how long a batch without an answer is still under way.
func (p *process) later() time.Duration {
	n, _ := p.dice(40_000)
	return time.Duration(n) * time.Millisecond
}

// lateStore does some calls after it has returned an error.
type lateStore struct {
	outbox.Store
	p *process
}

func (s *lateStore) late(do func()) bool {
	if n, _ := s.p.dice(200); n > 0 || s.p.w.calm.Load() {
		return false
	}
	n, _ := s.p.dice(2000)
	s.p.w.late.Go(func() {
		time.Sleep(time.Duration(n) * time.Millisecond)
		do()
	})
	return true
}

func (s *lateStore) Hold(ctx context.Context, relay string, lease time.Duration, share bool) ([]outbox.Lease, error) {
	if s.late(func() { _, _ = s.Store.Hold(ctx, relay, lease, share) }) {
		return nil, errDatabase
	}
	return s.Store.Hold(ctx, relay, lease, share)
}

func (s *lateStore) Settle(ctx context.Context, relay string, held []outbox.Lease, what outbox.Settlement) ([]int, error) {
	if s.late(func() { _, _ = s.Store.Settle(ctx, relay, held, what) }) {
		return nil, errDatabase
	}
	return s.Store.Settle(ctx, relay, held, what)
}

func (p *process) fate(m *idem.Message) fate {
	id := idOf(m)
	n, took := p.dice(100)
	long, _ := p.dice(40_000)
	slow := time.Duration(long) * time.Millisecond
	switch {
	case p.dead.Load():
		return fate{err: errBroker}
	case before(&p.w.noBroker):
		switch {
		case n < 60:
			return fate{wait: took, err: errBroker}
		case n < 80:
			return fate{wait: slow, err: errBroker, written: n%2 == 0 && !poisoned(id)}
		}
		return fate{wait: took, err: errBroker, written: !poisoned(id)}
	case strings.HasSuffix(id, "!size"):
		return fate{wait: took, err: idem.ErrTooLarge}
	case strings.HasSuffix(id, "!refused"):
		return fate{wait: took, err: fmt.Errorf("broker: %w", idem.ErrRefused)}
	case strings.HasSuffix(id, "!topic"), strings.HasSuffix(id, "?topic") && p.w.tried(id) <= 3:
		return fate{wait: took, err: idem.ErrNoTopic}
	case n < 3 && !p.w.calm.Load():
		return fate{wait: took, err: errBroker, written: n == 0}
	case n < 5 && !p.w.calm.Load():
		return fate{wait: slow, written: true, err: []error{nil, errBroker}[n-3]}
	}
	return fate{wait: took, written: true}
}

func (w *world) tried(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tries[id]++
	return w.tries[id]
}

func poisoned(id string) bool { return strings.Contains(id, "!") }

func (w *world) check() {
	states := w.table.states()
	for a, order := range w.table.order {
		var want []string
		halted := false
		for _, id := range order {
			is := sent
			switch {
			case halted:
				is = blocked
			case poisoned(id):
				is = parked
				halted = w.when == outbox.Halt
			default:
				want = append(want, id)
			}
			require.Equal(w.t, is, states[id], id)
		}
		require.Equal(w.t, want, w.broker.firsts(a.Topic, a.Key))
	}
	for _, id := range w.table.keyless {
		if poisoned(id) {
			require.Equal(w.t, parked, states[id], id)
			continue
		}
		require.Equal(w.t, sent, states[id], id)
		require.Positive(w.t, w.broker.times(id), id)
	}
	for id := range states {
		w.again += max(0, w.broker.times(id)-1)
	}
}
