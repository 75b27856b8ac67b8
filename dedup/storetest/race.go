package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// arena is the view of all racing workers on the keys of the race. The rules:
//
//   - No worker enters a key while the lease of another worker inside still lives.
//   - No worker enters a key that was completed. If only Done shows it, the completion was reported
//     as lost (rule 29), and a claim granted before that may still enter.
//   - The store does not answer Fresh after an attempt that never ended.
//   - The store does not answer Done before a worker began to complete.
//
// For the arena, a lease lives from before the call that asked for the lease was sent. The
// server began the lease later, so the lease also ends later at the server. A worker that
// stalled for longer than the lease counts as lost and proves no fault.
type arena struct {
	mu    sync.Mutex
	keys  map[string]*ring
	wrong []string
	seen  map[string]int
}

type ring struct {
	inside     int // the worker, or 0
	until      time.Time
	unended    bool // an attempt began and did not end
	completing bool
	done       bool // a completion succeeded
	shown      bool // Done was answered
}

func (r *ring) over() bool { return r.done || r.shown }

// enter reports whether worker may run under the answer got. until is the end of the lease, and
// shown reports whether Done was answered before worker asked.
func (a *arena) enter(worker int, id string, got dedup.Answer, until time.Time, shown bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, now := a.keys[id], time.Now()
	a.seen[got.Verdict.String()]++
	if !now.Before(until) {
		r.unended = true // as good as crashed
		return false
	}
	switch {
	case r.done, shown:
		a.fault("%s: %v although it was completed", id, got.Verdict)
	case r.inside != 0 && now.Before(r.until):
		a.fault("%s: worker %d is let in (%v) while worker %d's lease lives", id, worker,
			got.Verdict, r.inside)
	case got.Verdict == dedup.Fresh && r.unended:
		a.fault("%s: Fresh after an attempt that never ended", id)
	}
	r.inside, r.until, r.unended = worker, until, true
	return true
}

// leave is called before the worker calls the store again. A worker that goes makes room for
// others at once. harmless means that no attempt so far can have had an effect.
func (a *arena) leave(worker int, s stay, goes, harmless bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.keys[s.claim.Key.ID]
	if r.inside != worker {
		if time.Now().Before(s.until) {
			a.fault("%s: worker %d was thrown out while its lease lived", s.claim.Key.ID, worker)
		}
		return
	}
	if goes {
		r.inside = 0
	}
	if harmless {
		r.unended = false
	}
}

func (a *arena) note(id string, change func(*ring)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a.keys[id])
}

func (a *arena) isDone(id string) {
	a.note(id, func(r *ring) {
		a.seen["done"]++
		if !r.completing && !r.done {
			a.fault("%s: Done without a completion: lost", id)
		}
		r.shown = true
	})
}

// shown reports for which of reqs Done was answered.
func (a *arena) shown(reqs []dedup.Request) []bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	shown := make([]bool, len(reqs))
	for i := range reqs {
		shown[i] = a.keys[reqs[i].Key.ID].shown
	}
	return shown
}

func (a *arena) fault(format string, args ...any) {
	if len(a.wrong) < 10 {
		a.wrong = append(a.wrong, fmt.Sprintf(format, args...))
	}
}

func (a *arena) over() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.wrong) > 0 {
		return true
	}
	for _, r := range a.keys {
		if !r.over() {
			return false
		}
	}
	return true
}

func randomRace(k *kit) {
	const workers, keys = 16, 24
	_, seed := k.random()
	a := &arena{keys: make(map[string]*ring), seen: make(map[string]int)}
	for i := range keys {
		a.keys[numbered("race", i)] = &ring{}
	}
	errs := inParallel(workers, func(i int) error {
		r := &racer{kit: k, arena: a, me: i + 1, rng: rand.New(rand.NewPCG(seed, uint64(i))),
			store: k.s}
		if i%2 == 1 {
			r.store = k.peer
		}
		for range 2000 {
			if a.over() {
				return nil
			}
			if err := r.round(); err != nil {
				return err
			}
		}
		return nil
	})
	for _, err := range errs {
		require.NoError(k, err, "seed %d", seed)
	}
	require.Empty(k, a.wrong, "seed %d", seed)
	require.True(k, a.over(), "not all keys were completed: %v", a.seen)
	for id := range a.keys {
		k.meets(dedup.Done, request(id))
	}
	require.Positive(k, a.seen["uncertain"], "no crash happened: the test checks no crash")
	k.Logf("verdicts: %v", a.seen)
}

type racer struct {
	*kit
	arena *arena
	me    int
	rng   *rand.Rand
	store dedup.Store
}

type stay struct {
	claim dedup.Claim
	fresh bool
	until time.Time
}

func (r *racer) round() error {
	var reqs []dedup.Request
	for _, i := range r.some() {
		reqs = append(reqs, request(numbered("race", i)))
	}
	t, answers, shown := dedup.NewToken(), make([]dedup.Answer, len(reqs)), r.arena.shown(reqs)
	until := time.Now().Add(r.lease - 3*time.Millisecond) // servers count in milliseconds
	if err := r.store.Claim(r.ctx, t, r.lease, reqs, answers); err != nil {
		return err
	}
	var mine []stay
	for i, a := range answers {
		switch id := reqs[i].Key.ID; {
		case a.Verdict.Held():
			if r.arena.enter(r.me, id, a, until, shown[i]) {
				mine = append(mine, stay{reqs[i].Held(t, a), a.Verdict == dedup.Fresh, until})
			}
		case a.Verdict == dedup.Done:
			r.arena.isDone(id)
		case a.Verdict != dedup.Busy:
			return fmt.Errorf("%s: unexpected %v", id, a.Verdict)
		}
	}
	if len(mine) == 0 {
		r.h.Sleep(r.lease / 20)
	}
	for _, s := range mine {
		if err := r.act(s); err != nil {
			return err
		}
	}
	return nil
}

func (r *racer) some() []int {
	some := r.rng.Perm(len(r.arena.keys))[:1+r.rng.IntN(3)]
	slices.Sort(some)
	return some
}

// act has the effect, or crashes, or comes back after the end of the lease.
func (r *racer) act(s stay) error {
	r.h.Sleep(time.Duration(r.rng.Int64N(int64(r.lease / 8))))
	if r.rng.IntN(10) == 0 { // a stall: the others go on without it
		r.h.Sleep(r.lease + r.lease/4)
	}
	switch p := r.rng.IntN(100); {
	case p < 50:
		return r.finish(s)
	case p < 65:
		return r.giveBack(s, dedup.Failed)
	case p < 75:
		return r.giveBack(s, dedup.Unstarted)
	case p < 85:
		return r.giveBack(s, dedup.Unknown)
	default:
		r.arena.leave(r.me, s, false, false) // crashed: it is never heard of again
		return nil
	}
}

func (r *racer) giveBack(s stay, o dedup.Outcome) error {
	r.arena.leave(r.me, s, true, s.fresh && o != dedup.Unknown)
	return lostIsFine(r.store.Release(r.ctx, []dedup.Release{release(s.claim, o)}))
}

func (r *racer) finish(s stay) error {
	id := s.claim.Key.ID
	r.arena.leave(r.me, s, false, false)
	r.arena.note(id, func(g *ring) { g.completing = true })
	d := completion(s.claim)
	if !r.h.lacks(Results) { // so that a lost one is not written (rule 29)
		d.Result = dedup.Result{Schema: 1, Data: []byte(id)}
	}
	err := r.store.Complete(r.ctx, []dedup.Completion{d})
	if err == nil {
		r.arena.note(id, func(g *ring) { g.done = true })
	}
	return lostIsFine(err)
}
