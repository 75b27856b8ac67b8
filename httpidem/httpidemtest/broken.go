package httpidemtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/httpidem"
	"github.com/stretchr/testify/require"
)

var brokenCases = []testCase{
	{name: "a handler that panics", run: panics},
	{name: "a result policy that panics", run: fatePanics},
	{name: "clients that hang up", run: hangUps},
	{name: "clients that close the connection", run: closedConnections},
	{name: "a holder that is gone", ways: claimed, run: holderGone},
	{name: "a forgotten key of an unknown outcome (rule 19)", ways: claimed, run: unknownForgotten},
	{name: "a store that cannot be asked", run: storeAway},
}

// panics is H-09: the client sees a broken connection, as without the middleware. Under a claim the
// outcome is unknown, which is the stored answer. A transaction was rolled back, and runs again.
func panics(k *kit) {
	const undone = "not-applied"
	s := k.serve(k.middleware().Handler(k.handler(func(w http.ResponseWriter, r *http.Request) {
		key := httpidem.KeyFrom(r.Context())
		if k.ran(key) > 1 {
			k.created(w, r)
			return
		}
		fmt.Fprint(w, "begun")
		switch key {
		case "panic":
			panic("of the handler")
		case "abort":
			panic(http.ErrAbortHandler)
		case "goexit":
			runtime.Goexit()
		case undone:
			httpidem.NotApplied(r.Context())
			panic("nothing done")
		}
	})))
	for _, key := range []string{"panic", "abort", "goexit", undone} {
		if key == "goexit" { // the server forgets its connection then
			k.exits(s, key)
		} else {
			_, err := ask(s, order(key))
			require.Error(k, err, key)
		}
		require.Eventually(k, func() bool { return k.results()[httpidem.Panicked] > 0 }, eventLimit,
			time.Millisecond)
		k.forget()
		for range 2 {
			r, err := ask(s, order(key))
			require.NoError(k, err)
			if k.tx || key == undone {
				require.Equal(k, http.StatusCreated, r.status)
				continue
			}
			k.refused(r, http.StatusInternalServerError, "handler_panicked")
			require.True(k, r.replayed)
		}
		switch {
		case k.tx:
			k.had(key, 2, 1)
		case key == undone:
			require.Equal(k, 2, k.ran(key))
		default:
			k.once(key)
		}
	}
}

// exits sends a call to a handler that ends the goroutine. net/http keeps such a connection open
// without an answer, so the client leaves.
func (k *kit) exits(s *httptest.Server, key string) {
	k.Helper()
	ctx, cancel := context.WithCancel(k.Context())
	defer cancel()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, err := ask(s, order(key).with(func(c *call) { c.ctx = ctx }))
		if err == nil {
			k.Errorf("%s: an answer", key)
		}
	}()
	require.Eventually(k, func() bool { return k.results()[httpidem.Panicked] > 0 }, eventLimit,
		time.Millisecond)
	cancel()
	k.wait(gone, "the client leaves")
}

// fatePanics: a panic in a function of the Config does not leave a key running for ever.
func fatePanics(k *kit) {
	h := k.middleware(func(c *httpidem.Config) {
		c.ResultPolicy = func(*http.Request, httpidem.Outcome) httpidem.ResultPolicy {
			if k.ran("a") == 1 {
				panic("of the policy")
			}
			return httpidem.Keep
		}
	}).Handler(k.handler(k.created))
	require.PanicsWithValue(k, "of the policy", func() { send(h, order("a")) })
	r := send(h, order("a"))
	if k.tx {
		require.Equal(k, http.StatusCreated, r.status)
		k.had("a", 2, 1)
		return
	}
	require.Contains(k, []string{"handler_panicked", "unknown_outcome"}, r.code())
	k.once("a")
}

// place is the moment at which a client hangs up.
type place string

const (
	beforeAll   place = "before anything"
	inBody      place = "while the body is read"
	inHandler   place = "in the handler"
	afterEffect place = "after the effect"
	sending     place = "while the answer leaves"
)

// hangUps is H-05: the client hangs up at any moment, and the retry gets the one answer.
func hangUps(k *kit) {
	places := []place{beforeAll, inBody, place(beforeClaim), place(afterClaim), inHandler,
		afterEffect, place(beforeEnd), place(afterEnd), sending, ""}
	for _, p := range places {
		for i := range k.HangUps {
			key := fmt.Sprintf("%s %d", p, i)
			k.hangUp(p, key)
			k.once(key)
		}
	}
	k.Logf("%d clients hung up at each of %d places: %v", k.HangUps, len(places), k.results())
}

// hangUp sends a key and hangs up from another goroutine: at a place, or in the handler without
// a place. Then hangUp sends the key again.
func (k *kit) hangUp(p place, key string) {
	k.Helper()
	ctx, cancel := context.WithCancel(k.Context())
	defer cancel()
	var gone sync.WaitGroup
	at := func(here place) error {
		switch {
		case here == p:
			cancel()
		case p == "" && here == inHandler:
			gone.Go(cancel)
		}
		return nil
	}
	h := k.middleware(k.hooked(func(here point) error {
		return at(place(here))
	})).Handler(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			_ = at(inHandler)
			k.handler(func(w http.ResponseWriter, r *http.Request) {
				_ = at(afterEffect)
				if err := r.Context().Err(); err != nil {
					k.Errorf("%s: context of the handler: %v", p, err)
				}
				k.created(w, r)
			}).ServeHTTP(w, r)
		}))
	_ = at(beforeAll)
	req := order(key).with(func(c *call) { c.ctx = ctx }).request()
	if p == inBody {
		req.Body = io.NopCloser(io.MultiReader(io.LimitReader(req.Body, 3), hangingUp(cancel)))
	}
	h.ServeHTTP(&leaving{httptest.NewRecorder(), func() { _ = at(sending) }}, req)
	gone.Wait()
	cancel()
	r := k.settled(k.middleware().Handler(k.handler(k.created)), order(key))
	k.executed(r, key, r.replayed)
}

// hangingUp is a body. The end of the body is the end of the client.
func hangingUp(cancel func()) io.Reader {
	return readerFunc(func([]byte) (int, error) {
		cancel()
		return 0, io.ErrUnexpectedEOF
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// leaving is a writer for a client that hangs up at the first byte.
type leaving struct {
	*httptest.ResponseRecorder
	leave func()
}

func (l *leaving) Write([]byte) (int, error) {
	l.leave()
	return 0, errors.New("the client has gone")
}

// closedConnections is H-05 on real connections: the handler continues although the server has
// noticed.
func closedConnections(k *kit) {
	type gone struct{}
	begun := make(chan struct{})
	m := k.middleware().Handler(k.handler(func(w http.ResponseWriter, r *http.Request) {
		noticed, ok := r.Context().Value(gone{}).(<-chan struct{})
		if k.ran(httpidem.KeyFrom(r.Context())) == 1 && ok {
			begun <- struct{}{}
			select {
			case <-noticed:
			case <-time.After(eventLimit):
				k.Errorf("the server does not notice")
			}
		}
		if err := r.Context().Err(); err != nil {
			k.Errorf("context of the handler: %v", err)
		}
		k.created(w, r)
	}))
	s := k.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), gone{}, r.Context().Done())))
	}))
	for i := range k.HangUps {
		key := fmt.Sprint("closed-", i)
		ctx, cancel := context.WithCancel(k.Context())
		left := make(chan struct{})
		go func() {
			defer close(left)
			if _, err := ask(s, order(key).with(func(c *call) { c.ctx = ctx })); err == nil {
				k.Errorf("%s: an answer", key)
			}
		}()
		k.wait(begun, "the handler begins")
		cancel()
		k.wait(left, "the client leaves")
		require.Eventually(k, func() bool {
			r, err := ask(s, order(key))
			return err == nil && r.status == http.StatusCreated && r.replayed
		}, eventLimit, 5*time.Millisecond)
		k.once(key)
	}
}

// holderGone: A process stops in the middle of a run, and the lease ends. The outcome is
// unknown, so the request does not run again (rule 19), unless Rerun is set. The late answer of
// the process is sent to the client, but not stored. The process lives until another one has seen
// the key in flight, so that a slow machine does not end the short lease before.
func holderGone(k *kit) {
	stopped := errors.New("this process does not get through")
	var frozen atomic.Bool
	begun := make(chan struct{})
	wake, release := k.barrier()
	var cause error
	short := func(c *httpidem.Config) { c.Lease = k.Lease }
	gone := k.middleware(k.hooked(func(p point) error {
		if p == renewal && frozen.Load() {
			return stopped
		}
		return nil
	}), short).Handler(k.handler(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-wake
		select {
		case <-r.Context().Done():
		case <-time.After(10 * time.Second): // the loss of the claim was not reported
		}
		cause = context.Cause(r.Context())
		k.created(w, r)
	}))
	first := make(chan reply, 1)
	go func() { first <- send(gone, order("a")) }()
	k.wait(begun, "the handler begins")

	heir := k.middleware(short).Handler(k.handler(k.created))
	k.inFlight(send(heir, order("a")))
	frozen.Store(true)
	for range 3 {
		k.refused(k.settled(heir, order("a")), http.StatusConflict, "unknown_outcome")
		k.observed(httpidem.UnknownOutcome, http.StatusConflict)
	}
	release()
	k.executed(<-first, "a", false)
	k.observed(httpidem.Unstored, http.StatusCreated)
	require.ErrorIs(k, cause, dedup.ErrClaimLost)
	k.refused(send(heir, order("a")), http.StatusConflict, "unknown_outcome")
	k.once("a")

	again := k.middleware(short,
		func(c *httpidem.Config) { c.Rerun = true }).Handler(k.handler(k.created))
	require.Contains(k, send(again, order("a")).body, `"run":2`)
	r := send(heir, order("a"))
	require.True(k, r.replayed)
	require.Contains(k, r.body, `"run":2`)
	k.had("a", 2, 2)
}

// unknownForgotten: a person forgets a key whose outcome is unknown, and the next request runs
// (rule 19). Forget also removes the fingerprint, so another payload runs as well.
func unknownForgotten(k *kit) {
	operator, ok := k.store.(dedup.Operator)
	if !ok {
		k.Skip("the store is no dedup.Operator")
	}
	var key dedup.Key
	short := func(c *httpidem.Config) { c.Lease = k.Lease }
	lost := k.middleware(k.hooked(func(p point) error {
		if p == beforeEnd {
			return dedup.ErrClaimLost
		}
		return nil
	}), short).Handler(k.handler(func(w http.ResponseWriter, r *http.Request) {
		key, _ = httpidem.StoreKey(r.Context())
		k.created(w, r)
	}))
	h := k.middleware(short).Handler(k.handler(k.created))
	corrected := func(c *call) { c.body = `{"amount":8}` }
	for name, retry := range map[string]call{
		"a": order("a"), "b": order("b").with(corrected),
	} {
		k.executed(send(lost, order(name)), name, false)
		k.observed(httpidem.Unstored, http.StatusCreated)
		k.refused(k.settled(h, order(name)), http.StatusConflict, "unknown_outcome")
		require.NoError(k, operator.Forget(k.Context(), key))
		for i := range 2 {
			r := send(h, retry)
			require.Equal(k, http.StatusCreated, r.status, r.body)
			require.Contains(k, r.body, `"run":2`)
			require.Equal(k, i > 0, r.replayed)
		}
		k.had(name, 2, 2)
	}
}

// storeAway: no handler runs without a claim, unless FailOpen is set (H-18, R-19).
func storeAway(k *kit) {
	unavailable := fmt.Errorf("test: %w", dedup.ErrUnavailable)
	down := k.hooked(func(p point) error {
		if p == beforeClaim {
			return unavailable
		}
		return nil
	})
	h := k.middleware(down).Handler(k.handler(k.created))
	r := send(h, order("a"))
	k.refused(r, http.StatusServiceUnavailable, "store_unavailable")
	require.Equal(k, retryAfter, r.header.Get("Retry-After"))
	k.observed(httpidem.Unavailable, http.StatusServiceUnavailable)
	k.had("a", 0, 0)
	if !k.tx {
		open := k.middleware(down,
			func(c *httpidem.Config) { c.FailOpen = true }).Handler(k.handler(k.created))
		k.executed(send(open, order("b")), "b", false)
		k.observed(httpidem.Unguarded, 0)
		k.once("b")
	}
	// the store is available again
	k.executed(send(k.middleware().Handler(k.handler(k.created)), order("a")), "a", false)
	k.once("a")
}
