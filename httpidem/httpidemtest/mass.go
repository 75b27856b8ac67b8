package httpidemtest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/httpidem"
	"github.com/stretchr/testify/require"
)

var massCases = []testCase{
	{name: "many callers of one key", run: manyCallers},
}

// manyCallers is H-04: Many callers send one key at the same time, to two processes, and one
// handler runs. Half of the keys are for callers without Wait: each gets the answer or 409
// request_in_flight. The other half is for callers with Wait: all get the answer.
func manyCallers(k *kit) {
	seed := rand.Uint64() >> 32
	if s := os.Getenv("IDEM_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(k, err, "IDEM_SEED")
	}
	k.Logf("repeat with IDEM_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	peer := k.Peer(k, k.store)
	// So many callers keep a store longer than its time-out, which is not the subject.
	inTime := func(c *httpidem.Config) { c.StoreTimeout = 4 * eventLimit }
	waiting := func(c *httpidem.Config) { c.Wait, c.Poll = eventLimit, 5*time.Millisecond }
	other := func(c *httpidem.Config) { c.Store = peer }
	r := &rush{kit: k, crowds: make(map[string]*crowd)}
	h := k.handler(r.handle)
	prompt := [2]http.Handler{k.middleware(inTime).Handler(h),
		k.middleware(inTime, other).Handler(h)}
	patient := [2]http.Handler{k.middleware(inTime, waiting).Handler(h),
		k.middleware(inTime, waiting, other).Handler(h)}

	work := make(chan *crowd)
	var workers sync.WaitGroup
	for range k.AtOnce {
		workers.Go(func() {
			for g := range work {
				r.send(g)
				g.weigh()
			}
		})
	}
	began := time.Now()
	for i := range k.Keys {
		g := &crowd{key: fmt.Sprint("key-", i), handlers: prompt, open: make(chan struct{})}
		if i%2 == 1 {
			g.handlers, g.waits = patient, true
		}
		// in most cases all others come while the handler runs
		if g.hold = int64(k.Callers - 1); rng.IntN(10) == 0 {
			g.hold = rng.Int64N(int64(k.Callers))
		}
		r.add(g)
		work <- g
	}
	close(work)
	workers.Wait()
	k.Logf("%d callers of %d keys in %s: %v", k.Callers, k.Keys,
		time.Since(began).Round(time.Millisecond), k.results())
	for _, g := range r.crowds {
		r.judge(g)
	}
}

// crowd is one key with its callers.
type crowd struct {
	key      string
	handlers [2]http.Handler
	waits    bool
	hold     int64 // callers that must be refused, or wait, before the handler continues
	held     atomic.Int64
	opened   sync.Once
	open     chan struct{}
	replies  []reply
	first    int // callers that got the first answer, not a replay
	wrong    *reply
}

type rush struct {
	*kit
	all    sync.Mutex
	crowds map[string]*crowd
}

func (r *rush) add(g *crowd) {
	r.all.Lock()
	defer r.all.Unlock()
	r.crowds[g.key] = g
}

func (r *rush) handle(w http.ResponseWriter, req *http.Request) {
	r.all.Lock()
	g := r.crowds[httpidem.KeyFrom(req.Context())]
	r.all.Unlock()
	if g.hold > 0 {
		select {
		case <-g.open:
		case <-time.After(eventLimit): // the status decides
			http.Error(w, fmt.Sprintf("%d of %d others have come", g.held.Load(), g.hold),
				http.StatusInternalServerError)
			return
		}
	}
	r.created(w, req)
}

// send lets all callers go at once.
func (r *rush) send(g *crowd) {
	start := make(chan struct{})
	var callers sync.WaitGroup
	g.replies = make([]reply, r.Callers)
	for i := range g.replies {
		callers.Go(func() {
			<-start
			if g.waits { // nearly: they are about to wait
				g.count()
			}
			g.replies[i] = send(g.handlers[i%2], order(g.key))
			if !g.waits {
				g.count()
			}
		})
	}
	close(start)
	callers.Wait()
}

func (g *crowd) count() {
	if g.held.Add(1) >= g.hold {
		g.opened.Do(func() { close(g.open) })
	}
}

// weigh counts the answers of the callers, and keeps the first one that is not allowed.
func (g *crowd) weigh() {
	body, location := fmt.Sprintf(`{"order":%q,"run":1}`, g.key), "/orders/"+g.key
	for i := range g.replies {
		switch got := &g.replies[i]; {
		case got.status == http.StatusCreated && got.body == body &&
			got.header.Get("Location") == location:
			if !got.replayed {
				g.first++
			}
		case !g.waits && got.status == http.StatusConflict &&
			got.header.Get("Retry-After") == retryAfter && got.code() == "request_in_flight":
		case g.wrong == nil:
			g.wrong = got
		}
	}
	g.replies = nil // free the memory
}

func (r *rush) judge(g *crowd) {
	require.Nil(r, g.wrong, "an answer to %s", g.key)
	require.Equal(r, 1, g.first, "callers of %s that got the answer first hand", g.key)
	r.once(g.key)
}
