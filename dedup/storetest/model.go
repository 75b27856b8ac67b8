package storetest

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// model is the store as the contract describes a store, neither fast, durable nor concurrent.
type model map[string]*entry

type entry struct {
	state     string // open, live, over (claimed, the lease ended), done, dead
	token     dedup.Token
	doubt     bool
	fence     uint64
	failures  uint32
	takeovers uint32
	position  dedup.Position
	mark      dedup.Fingerprint
	first     dedup.Origin
	reason    string
	result    dedup.Result
	released  bool // the holder released as Unknown, without a claim since
	reopened  bool // reopened, without a claim since: a repetition changes nothing
}

// claim returns the answer that the store must give, and another verdict that the store may
// give.
func (m model) claim(t dedup.Token, r dedup.Request) (want dedup.Answer, or dedup.Verdict) {
	e := m[r.Key.ID]
	if e == nil {
		e = &entry{state: "open", position: r.Position, mark: r.Fingerprint, first: r.Origin}
		m[r.Key.ID] = e
	}
	want.First = e.first
	other := r.Position.Generation != e.position.Generation || r.Position.Before(e.position)
	var none dedup.Fingerprint
	switch {
	case e.mark != none && r.Fingerprint != none && e.mark != r.Fingerprint &&
		e.mark != r.SecondFingerprint && r.Position.Generation == 0:
		want.Verdict, want.Known = dedup.Conflict, e.known(t, other)
		if want.Known == dedup.Dead {
			want.Reason = e.reason
		}
	case e.state == "done":
		want.Verdict, want.Result = dedup.Done, e.result
	case e.state == "dead":
		want.Verdict, want.Reason = dedup.Dead, e.reason
	case e.state == "live" && e.token != t:
		want.Verdict = dedup.Busy
		if other {
			or = dedup.Rescheduled
		}
	case e.state != "live" && other:
		want.Verdict = dedup.Rescheduled
	default:
		e.grant(t, r)
		want.Verdict = dedup.Fresh
		if e.doubt {
			want.Verdict = dedup.Uncertain
		}
		want.Fence, want.Failures, want.Takeovers = e.fence, e.failures, e.takeovers
	}
	return want, or
}

// known is the verdict for an equal copy. other reports a copy that is not of the awaited
// position.
func (e *entry) known(t dedup.Token, other bool) dedup.Verdict {
	switch {
	case e.state == "done":
		return dedup.Done
	case e.state == "dead":
		return dedup.Dead
	case e.state == "live" && (!other || e.token == t):
		return dedup.Busy
	case other:
		return dedup.Rescheduled
	}
	return dedup.Fresh
}

func (e *entry) grant(t dedup.Token, r dedup.Request) {
	if e.state == "live" { // repeated
		return
	}
	if e.state == "over" {
		e.doubt = true
		e.takeovers++
	}
	e.state, e.token, e.position = "live", t, r.Position
	e.released, e.reopened = false, false
	e.fence++
	if e.mark == (dedup.Fingerprint{}) && e.position.Generation == 0 {
		e.mark = r.Fingerprint
	}
}

func (e *entry) heldBy(t dedup.Token) bool {
	return (e.state == "live" || e.state == "over") && e.token == t
}

func (m model) complete(d dedup.Completion) (ok bool) {
	e := m[d.Key.ID]
	late := e.released && e.token == d.Token && d.Dead == "" && d.Retry == 0
	if !e.heldBy(d.Token) && !late {
		return false
	}
	e.released = false
	switch {
	case d.Dead != "":
		e.state, e.reason = "dead", d.Dead
	case d.Retry != 0:
		e.state, e.position.Retry = "open", d.Retry
	default:
		e.state, e.result = "done", d.Result
	}
	return true
}

func (m model) release(r dedup.Release) (ok bool) {
	e := m[r.Key.ID]
	if !e.heldBy(r.Token) {
		return false
	}
	e.state, e.released = "open", r.Outcome == dedup.Unknown
	e.doubt = e.doubt || r.Outcome == dedup.Unknown
	if r.Outcome == dedup.Undone && !e.doubt {
		e.mark = dedup.Fingerprint{}
	}
	if r.Outcome == dedup.Failed {
		e.failures++
	}
	return true
}

func (m model) reopen(id string) (dedup.Position, bool) {
	e := m[id]
	if e == nil || e.state != "dead" && !e.reopened {
		return dedup.Position{}, false
	}
	if !e.reopened {
		e.state, e.reopened, e.doubt, e.reason, e.released = "open", true, false, "", false
		e.position = dedup.Position{Generation: e.position.Generation + 1}
		e.mark, e.failures, e.takeovers = dedup.Fingerprint{}, 0, 0
	}
	return e.position, true
}

// walk is one random walk: a model, a store, and all claims believed to be held.
type walk struct {
	*kit
	rng    *rand.Rand
	model  model
	claims []dedup.Claim
	left   []dedup.Claim // released as Unknown; their runs may still succeed
	step   int
	seed   uint64
	epoch  int // the keys change now and then, since done keys stay done
}

const walkKeys = 9

func randomModel(k *kit) {
	rng, seed := k.random()
	w := &walk{kit: k, rng: rng, seed: seed, model: make(model)}
	for w.step = range steps(1500) {
		if w.step%60 == 0 {
			w.epoch++
			w.claims, w.left = nil, nil
		}
		switch p := rng.IntN(100); {
		case p < 45:
			w.claim()
		case p < 61:
			w.complete()
		case p < 65:
			w.succeedLate()
		case p < 83:
			w.release()
		case p < 92:
			w.renew()
		default:
			w.reopen()
		}
	}
}

func (w *walk) store() dedup.Store {
	if w.rng.IntN(2) == 0 {
		return w.peer
	}
	return w.s
}

func (w *walk) id(i int) string { return numbered(numbered("walk", w.epoch), i) }

// pick returns some of the keys, ascending.
func (w *walk) pick() []int {
	some := w.rng.Perm(walkKeys)[:1+w.rng.IntN(4)]
	slices.Sort(some)
	return some
}

func (w *walk) request(i int) dedup.Request {
	r := request(w.id(i))
	r.Origin = origin(w.rng.IntN(6), w.step)
	if e := w.model[r.Key.ID]; e != nil {
		r.Position = e.position
	}
	if w.rng.IntN(5) == 0 {
		r.Position = dedup.Position{Generation: uint32(w.rng.IntN(10) / 9),
			Retry: uint32(w.rng.IntN(3))}
	}
	// These keys are not reopened: the record left behind by a replayed copy is open.
	if i%3 == 0 && !w.h.lacks(Fingerprints) {
		p := prints["checksum"]
		if i%2 == 0 {
			p = prints["keyed hash"]
		}
		r.Fingerprint = p[0]
		if w.rng.IntN(12) == 0 && r.Position.Generation == 0 {
			r.Fingerprint = p[1]
			if i%2 == 0 && w.rng.IntN(2) == 0 {
				r.SecondFingerprint = p[0]
			}
		}
	}
	return r
}

func (w *walk) claim() {
	var reqs []dedup.Request
	for _, i := range w.pick() {
		reqs = append(reqs, w.request(i))
	}
	t, lease := dedup.NewToken(), long
	if w.rng.IntN(12) == 0 {
		lease = w.brief()
	}
	calls := 1
	if lease == long && w.rng.IntN(4) == 0 {
		calls = 2 // the reply to the first was lost
	}
	for call := range calls {
		answers := make([]dedup.Answer, len(reqs))
		require.NoError(w, w.store().Claim(w.ctx, t, lease, reqs, answers))
		for i, got := range answers {
			w.wellFormed(reqs[i], lease, got)
			want, or := w.model.claim(t, reqs[i])
			w.compare(reqs[i], want, or, got)
			if got.Verdict.Held() && call == calls-1 {
				w.claims = append(w.claims, reqs[i].Held(t, got))
			}
		}
	}
	if lease != long {
		w.endLeases(lease, func(e *entry) bool { return e.token == t })
	}
}

// brief is a lease that the walk can afford to wait for some hundred times.
func (w *walk) brief() time.Duration { return max(w.lease/30, 5*time.Millisecond) }

// endLeases lets a short lease end for the entries for which has is true.
func (w *walk) endLeases(lease time.Duration, has func(*entry) bool) {
	w.h.Sleep(lease + lease/4 + 5*time.Millisecond)
	for _, e := range w.model {
		if e.state == "live" && has(e) {
			e.state = "over"
		}
	}
}

func (w *walk) compare(r dedup.Request, want dedup.Answer, or dedup.Verdict, got dedup.Answer) {
	w.Helper()
	e := w.model[r.Key.ID]
	if or != 0 && got.Verdict == or {
		want.Verdict = or
	}
	require.Equal(w, want.Verdict.String(), got.Verdict.String(),
		"step %d, seed %d, %q at %v, model %+v", w.step, w.seed,
		r.Key, r.Position, e)
	// An overtaken copy may get Busy.
	if want.Known == dedup.Rescheduled && e.state == "live" && got.Known == dedup.Busy {
		want.Known = dedup.Busy
	}
	require.Equal(w, want.Known.String(), got.Known.String(),
		"known: step %d, seed %d, %q at %v, model %+v", w.step, w.seed,
		r.Key, r.Position, e)
	require.Equal(w, [3]uint64{want.Fence, uint64(want.Failures), uint64(want.Takeovers)},
		[3]uint64{got.Fence, uint64(got.Failures), uint64(got.Takeovers)},
		"fence, failures, take-overs: step %d, seed %d, %q", w.step, w.seed, r.Key)
	require.Equal(w, want.Reason, got.Reason, "step %d, seed %d", w.step, w.seed)
	require.Equal(w, want.Result.Schema, got.Result.Schema, "step %d, seed %d", w.step, w.seed)
	require.True(w, bytes.Equal(want.Result.Data, got.Result.Data), "step %d, seed %d", w.step,
		w.seed)
	sameOrigin(w, want.First, got.First)
}

// take returns some claims of different keys. Some may have been lost. Those that are final are not
// used again.
func (w *walk) take(final bool) []dedup.Claim {
	var out []dedup.Claim
	seen := make(map[dedup.Key]bool)
	n := 1 + w.rng.IntN(4)
	w.rng.Shuffle(len(w.claims), func(i, j int) {
		w.claims[i], w.claims[j] = w.claims[j],
			w.claims[i]
	})
	w.claims = slices.DeleteFunc(w.claims, func(c dedup.Claim) bool {
		if len(out) == n || seen[c.Key] {
			return false
		}
		seen[c.Key] = true
		out = append(out, c)
		return final
	})
	return out
}

func (w *walk) complete() {
	var done []dedup.Completion
	for _, c := range w.take(true) {
		d := completion(c)
		switch p := w.rng.IntN(10); {
		case p < 3:
			d.Dead = numbered("reason", w.step)
		case p < 7:
			d.Retry = c.Position.Retry + 1
		default:
			if w.h.lacks(Results) {
				// without one, a lost completion may be written (rule 29)
				d.Dead = "instead of a result"
				break
			}
			d.Result = dedup.Result{Schema: uint32(w.step + 1),
				Data: []byte(numbered("result", w.step))}
		}
		done = append(done, d)
	}
	var lost []int
	for i, d := range done {
		if !w.model.complete(d) {
			lost = append(lost, i)
		}
	}
	w.outcome(w.store().Complete(w.ctx, done), lost)
	if w.rng.IntN(4) == 0 {
		w.outcome(w.store().Complete(w.ctx, done), lost) // repeated
	}
}

// succeedLate completes a claim that was released as Unknown.
func (w *walk) succeedLate() {
	if len(w.left) == 0 {
		return
	}
	i := w.rng.IntN(len(w.left))
	d := completion(w.left[i])
	w.left = slices.Delete(w.left, i, i+1)
	if w.h.lacks(Results) {
		d.Dead = "instead of a result" // as in complete
	} else {
		d.Result = dedup.Result{Schema: uint32(w.step + 1), Data: []byte(numbered("late", w.step))}
	}
	var lost []int
	if !w.model.complete(d) {
		lost = []int{0}
	}
	w.outcome(w.store().Complete(w.ctx, []dedup.Completion{d}), lost)
}

func (w *walk) release() {
	var back []dedup.Release
	for _, c := range w.take(true) {
		o := dedup.Outcome(w.rng.IntN(4))
		if o == dedup.Unknown {
			w.left = append(w.left, c)
		}
		back = append(back, release(c, o))
	}
	var lost []int
	for i, r := range back {
		if !w.model.release(r) {
			lost = append(lost, i)
		}
	}
	w.outcome(w.store().Release(w.ctx, back), lost)
	if w.rng.IntN(4) == 0 {
		w.harmless(w.store().Release(w.ctx, back)) // repeated
	}
}

func (w *walk) renew() {
	claims := w.take(false)
	lease := long
	if w.rng.IntN(4) == 0 {
		lease = w.brief()
	}
	var lost []int
	tokens := make(map[string]dedup.Token)
	for i, c := range claims {
		e := w.model[c.Key.ID]
		if !e.heldBy(c.Token) {
			lost = append(lost, i)
			continue
		}
		e.state = "live"
		tokens[c.Key.ID] = c.Token
	}
	w.outcome(w.store().Renew(w.ctx, lease, claims), lost)
	if lease != long && len(tokens) > 0 {
		short := make(map[*entry]bool)
		for id := range tokens {
			short[w.model[id]] = true
		}
		w.endLeases(lease, func(e *entry) bool { return short[e] })
	}
}

func (w *walk) outcome(err error, lost []int) {
	w.Helper()
	if len(lost) == 0 {
		require.NoError(w, err, "step %d, seed %d", w.step, w.seed)
		return
	}
	w.lost(err, lost...)
}

func (w *walk) reopen() {
	i := w.rng.IntN(walkKeys)
	if w.h.lacks(Reopen) || i%3 == 0 {
		return
	}
	want, ok := w.model.reopen(w.id(i))
	got, err := w.reopener().Reopen(w.ctx, key(w.id(i)))
	if !ok {
		require.ErrorIs(w, err, dedup.ErrNotDead, "step %d, seed %d", w.step, w.seed)
		return
	}
	require.NoError(w, err, "step %d, seed %d", w.step, w.seed)
	require.Equal(w, want, got, "step %d, seed %d", w.step, w.seed)
}
