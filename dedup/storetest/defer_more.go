package storetest

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

func deferQueues(kt *kit) {
	k := deferralOf(kt)
	names := []string{"", "\x00", "A", "B", "a", "a\x00", "aa", "b", "ä", "日", "\xff"}
	var events []dedup.Deferred
	for i, name := range names {
		for n := range i + 1 {
			events = append(events, waiting(name, numbered(numbered("e", i), n), 0))
		}
	}
	slices.Reverse(events)
	k.deferEvent(events...)
	for _, limit := range []int{2, 3, len(names), len(names) + 1} {
		var got []dedup.Queue
		for after := ""; ; after = got[len(got)-1].Name {
			page, err := k.p.Queues(k.ctx, part, after, limit)
			require.NoError(k, err)
			require.LessOrEqual(k, len(page), limit)
			got = append(got, page...)
			if len(page) < limit {
				break
			}
		}
		require.Len(k, got, len(names), "in pages of %d", limit)
		for i, q := range got {
			require.Equal(k, names[i], q.Name)
			require.Equal(k, i+1, q.Length)
			require.LessOrEqual(k, q.Wait, time.Duration(0))
		}
	}
}

// deferLongNames: A Kafka key may be as large as a message, and an event that cannot be deferred
// would be in the way for ever.
func deferLongNames(kt *kit) {
	k := deferralOf(kt)
	stem := strings.Repeat("k\xe4\x00", 30_000)
	names := []string{stem, stem + "1", stem + "2", stem[:600], stem[:512], stem[:256], stem[:255]}
	for i, name := range names {
		k.deferEvent(waiting(name, numbered("e", i), 0), waiting(name, numbered("f", i), 0))
	}
	var all []string
	for after := ""; ; after = all[len(all)-1] {
		page, err := k.p.Queues(k.ctx, part, after, 2)
		require.NoError(k, err)
		for _, q := range page {
			require.Equal(k, 2, q.Length)
			all = append(all, q.Name)
		}
		if len(page) < 2 {
			break
		}
	}
	require.ElementsMatch(k, names, all)
	for i, name := range names {
		k.remove(name, numbered("e", i), false)
		k.head(name, numbered("f", i))
		_, e, ok, err := k.p.FindDeferred(k.ctx, part.Scope, part.Topic, key(numbered("f", i)))
		require.NoError(k, err)
		require.True(k, ok)
		require.Equal(k, name, e.Queue)
	}
	heads, _, err := k.p.Due(k.ctx, part, 100)
	require.NoError(k, err)
	require.Len(k, heads, len(names))
	for _, e := range heads {
		require.Contains(k, names, e.Queue)
		k.remove(e.Queue, e.Key.ID, true)
	}
}

func deferFind(kt *kit) {
	k := deferralOf(kt)
	behind := waiting("q", "b", long)
	k.deferEvent(waiting("q", "a", 0), behind)
	where, e, ok, err := k.peer.FindDeferred(k.ctx, part.Scope, part.Topic, behind.Key)
	require.NoError(k, err)
	require.True(k, ok)
	require.Equal(k, part, where)
	k.like(behind, e)
	require.Positive(k, e.Wait)
	scope, tenant, typ := behind.Key, behind.Key, behind.Key
	scope.Scope, tenant.Tenant, typ.Type = "x", "x", "x"
	for _, c := range []struct {
		scope, topic string
		key          dedup.Key
	}{
		{part.Scope, part.Topic, key("c")}, {part.Scope, part.Topic, tenant},
		{part.Scope, part.Topic, typ},
		{part.Scope, "x", behind.Key}, {"x", part.Topic, scope},
	} {
		_, _, ok, err := k.peer.FindDeferred(k.ctx, c.scope, c.topic, c.key)
		require.NoError(k, err)
		require.False(k, ok, "%v", c)
		those, err := k.peer.DeferredOf(k.ctx, c.scope, c.topic, c.key)
		require.NoError(k, err)
		require.Empty(k, those, "%v", c)
	}
}

// deferRace: Several callers defer to one queue and several remove from the queue, each as if
// alone. The queue ends all the time.
//
// Each event becomes the head once, in the order of the caller that deferred the event. No queue
// remains in the store.
func deferRace(kt *kit) {
	r := &deferRacers{deferral: deferralOf(kt), end: time.Now().Add(time.Minute),
		room: make(chan struct{}, racersPark*racersEach), over: make(chan struct{})}
	r.room <- struct{}{}
	errs := inParallel(racersPark+racersTake, func(i int) error {
		p := []dedup.Deferrer{r.p, r.peer}[i%2]
		if i < racersPark {
			return r.deferAll(p, i)
		}
		return r.take(p)
	})
	require.NoError(kt, errors.Join(errs...))
	require.Equal(kt, racersPark*racersEach, r.seen, "events that came up")
	r.lengths(part)
	r.head("q", "")
}

const racersPark, racersEach, racersTake = 4, 60, 3

type deferRacers struct {
	*deferral
	end time.Time
	// room admits one more event. The sender admits while the event before is being removed, so
	// that the queue ends all the time.
	room chan struct{}
	over chan struct{} // closed when a racer takes no more
	once sync.Once

	mu   sync.Mutex
	last [racersPark]int // by deferring racer, the number of its last head
	seen int
}

func (r *deferRacers) allSeen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen == racersPark*racersEach || time.Now().After(r.end)
}

func (r *deferRacers) deferAll(p dedup.Deferrer, who int) error {
	for n := 1; n <= racersEach; n++ {
		e := waiting("q", numbered(numbered("e", who), n), 0)
		e.Data = []byte{byte(who), byte(n)}
		select {
		case <-r.room:
		case <-r.over:
			return nil
		}
		if err := p.Defer(r.ctx, part, []dedup.Deferred{e}); err != nil {
			return err
		}
	}
	return nil
}

func (r *deferRacers) take(p dedup.Deferrer) error {
	defer r.once.Do(func() { close(r.over) })
	for !r.allSeen() {
		e, ok, err := headOf(r.ctx, p, part, "q")
		mine := false
		if err == nil && ok && e.Position.Retry == 0 {
			e.Position.Retry = 1 // the racer that moves the event on owns it, as with a claim
			mine, err = p.Postpone(r.ctx, part, e)
		}
		if err == nil && mine {
			r.came(e)
			r.room <- struct{}{}
			_, err = p.Remove(r.ctx, part, "q", dedup.Deferred{Key: e.Key, Position: e.Position})
		}
		if err != nil {
			return err
		}
		if !mine {
			r.pause()
		}
	}
	return nil
}

func (r *deferRacers) came(e dedup.Deferred) {
	r.mu.Lock()
	defer r.mu.Unlock()
	who, n := e.Data[0], int(e.Data[1])
	if n != r.last[who]+1 {
		r.Errorf("event %d of %d came up after %d", n, who, r.last[who])
	}
	r.last[who] = n
	r.seen++
}

func deferTwice(kt *kit) {
	k := deferralOf(kt)
	const queues, each = 8, 5
	names := make([]string, queues)
	var events []dedup.Deferred
	for n := range each {
		for q := range queues {
			names[q] = numbered("q", q)
			events = append(events, waiting(names[q], numbered(names[q], n), 0))
		}
	}
	stores := []dedup.Deferrer{k.p, k.peer}
	errs := inParallel(6, func(i int) error {
		mine := slices.Clone(events)
		if i%2 == 1 { // queues the other way round, their events not
			slices.SortStableFunc(mine, func(a, b dedup.Deferred) int {
				return strings.Compare(b.Queue, a.Queue)
			})
		}
		return stores[i%2].Defer(k.ctx, part, mine)
	})
	require.NoError(k, errors.Join(errs...))
	for _, name := range names {
		for n := range each {
			k.head(name, numbered(name, n))
			k.remove(name, numbered(name, n), n == each-1)
		}
	}
	k.lengths(part)
}
