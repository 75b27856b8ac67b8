package httpidemtest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/httpidem"
	"github.com/stretchr/testify/require"
)

var massCases = []testCase{
	{name: "many callers of one key", run: manyCallers},
}

// manyCallers is H-04: of all who send a key at the same time, to two processes, one has its handler run. Half of the keys are for
// callers that do not wait, who get the answer or are told to come again, and half for callers that do, who all get the answer.
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
	waiting := func(c *httpidem.Config) { c.Wait, c.Poll = patience, 5*time.Millisecond }
	other := func(c *httpidem.Config) { c.Store = peer }
	r := &rush{kit: k, gates: make(map[string]*gate)}
	h := k.handler(r.handle)
	prompt := [2]http.Handler{k.middleware().Handler(h), k.middleware(other).Handler(h)}
	patient := [2]http.Handler{k.middleware(waiting).Handler(h), k.middleware(waiting, other).Handler(h)}

	work := make(chan *gate)
	var workers sync.WaitGroup
	for range k.AtOnce {
		workers.Go(func() {
			for g := range work {
				r.send(g)
			}
		})
	}
	began := time.Now()
	for i := range k.Keys {
		g := &gate{key: fmt.Sprint("key-", i), doors: prompt, open: make(chan struct{}), replies: make([]reply, k.Callers)}
		switch {
		case i%2 == 1:
			g.doors, g.waits = patient, true
		case rng.IntN(10) > 0: // mostly all others are refused while the handler runs
			g.hold = int64(k.Callers - 1)
		default:
			g.hold = rng.Int64N(int64(k.Callers))
		}
		r.add(g)
		work <- g
	}
	close(work)
	workers.Wait()
	k.Logf("%d callers of %d keys in %s: %v", k.Callers, k.Keys, time.Since(began).Round(time.Millisecond), k.results())
	for _, g := range r.gates {
		r.judge(g)
	}
}

// gate is one key and those who come with it.
type gate struct {
	key      string
	doors    [2]http.Handler
	waits    bool
	hold     int64 // how many must be refused before the handler goes on
	answered atomic.Int64
	opened   sync.Once
	open     chan struct{}
	replies  []reply
}

type rush struct {
	*kit
	all   sync.Mutex
	gates map[string]*gate
}

func (r *rush) add(g *gate) {
	r.all.Lock()
	defer r.all.Unlock()
	r.gates[g.key] = g
}

func (r *rush) handle(w http.ResponseWriter, req *http.Request) {
	r.all.Lock()
	g := r.gates[httpidem.KeyFrom(req.Context())]
	r.all.Unlock()
	if !g.waits && g.hold > 0 {
		select {
		case <-g.open:
		case <-time.After(patience): // judged by its status
			http.Error(w, fmt.Sprintf("%d of %d others were answered", g.answered.Load(), g.hold), http.StatusInternalServerError)
			return
		}
	}
	r.created(w, req)
}

// send lets all callers go at once.
func (r *rush) send(g *gate) {
	start := make(chan struct{})
	var callers sync.WaitGroup
	for i := range g.replies {
		callers.Go(func() {
			<-start
			g.replies[i] = send(g.doors[i%2], order(g.key))
			if g.answered.Add(1) >= g.hold {
				g.opened.Do(func() { close(g.open) })
			}
		})
	}
	close(start)
	callers.Wait()
}

func (r *rush) judge(g *gate) {
	r.once(g.key)
	first := 0
	body, location := fmt.Sprintf(`{"order":%q,"run":1}`, g.key), "/orders/"+g.key
	for _, got := range g.replies {
		switch { // what there are many of is compared by hand
		case got.status == http.StatusCreated && got.body == body && got.header.Get("Location") == location:
			if !got.replayed {
				first++
			}
		case g.waits:
			r.executed(got, g.key, got.replayed)
		case got.status != http.StatusConflict || got.header.Get("Retry-After") != retryAfter || !strings.Contains(got.body, `"request_in_flight"`):
			r.inFlight(got)
		}
	}
	require.Equal(r, 1, first, "callers of %s that got the answer first hand", g.key)
}
