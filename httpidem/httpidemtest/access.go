package httpidemtest

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/idem-go/idem/httpidem"
	"github.com/stretchr/testify/require"
)

var accessCases = []testCase{
	{name: "principals and tenants apart", run: apart},
	{name: "a right that was withdrawn", run: withdrawn},
	{name: "refused first", run: refusedFirst},
	{name: "looked up before a limiter", run: lookedUp},
	{name: "a cap of keys at work", run: capped},
}

// apart is H-12: keys of different principals stay distinct, in any spelling, so that no request
// gets an answer of another principal.
func apart(k *kit) {
	tenant := func(c *httpidem.Config) {
		c.Tenant = func(r *http.Request) (string, error) { return r.Header.Get("Tenant"), nil }
	}
	greet := func(w http.ResponseWriter, r *http.Request) {
		k.count(k.runs, "all")
		fmt.Fprintf(w, "for %s of %q", r.Header.Get("User"), r.Header.Get("Tenant"))
	}
	h := k.middleware(tenant).Handler(http.HandlerFunc(greet))
	who := []struct{ tenant, by, key string }{
		{"", "alice", "k"}, {"", "bob", "k"}, {"acme", "alice", "k"}, {"acme", "bob", "k"},
		{"", "alice:k", "k"}, {"", "alice", "k:k"},
		{"", "alice:k", "k:k"}, {"", "alice%3Ak", "k"}, {"alice", "k", "k"},
	}
	for i := range 2 {
		for _, w := range who {
			r := send(h, order(w.key).with(func(c *call) {
				c.by, c.header = w.by, http.Header{"Tenant": {w.tenant}}
			}))
			require.Equal(k, fmt.Sprintf("for %s of %q", w.by, w.tenant), r.body)
			require.Equal(k, i > 0, r.replayed, "%+v", w)
		}
	}
	require.Equal(k, len(who), k.ran("all"))
}

// withdrawn is H-12: a principal without the right to a request gets no replay either.
func withdrawn(k *kit) {
	var denied atomic.Bool
	m := k.middleware(func(c *httpidem.Config) {
		c.Authorize = func(*http.Request) error {
			if denied.Load() {
				return httpidem.Refuse(0, "no longer")
			}
			return nil
		}
	})
	h := k.handler(k.created)
	k.executed(send(m.Handler(h), order("a")), "a", false)
	k.executed(send(m.Handler(h), order("a")), "a", true)
	denied.Store(true)
	k.refused(send(m.Handler(h), order("a")), http.StatusForbidden, "not_allowed")
	k.refused(send(m.Lookup(m.Handler(h)), order("a")), http.StatusForbidden, "not_allowed")
	k.observed(httpidem.Refused, http.StatusForbidden)
	denied.Store(false)
	k.executed(send(m.Handler(h), order("a")), "a", true)
	k.once("a")
}

// refusedFirst is H-11: A request that is refused before the handler does not use up the key.
func refusedFirst(k *kit) {
	var no atomic.Pointer[string]
	check := func(what string) error {
		if n := no.Load(); n != nil && *n == what {
			return httpidem.Refuse(0, "no "+what)
		}
		return nil
	}
	h := k.middleware(func(c *httpidem.Config) {
		c.Principal = func(r *http.Request) (string, error) {
			return r.Header.Get("User"), check("principal")
		}
		c.Tenant = func(*http.Request) (string, error) { return "acme", check("tenant") }
		c.Authorize = func(*http.Request) error { return check("right") }
	}).Handler(k.handler(k.created))
	for _, c := range []struct {
		what   string
		status int
		code   string
	}{{"principal", 401, "principal_unknown"}, {"right", 403, "not_allowed"},
		{"tenant", 400, "tenant_unknown"}} {
		no.Store(&c.what)
		k.refused(send(h, order(c.what)), c.status, c.code)
		k.had(c.what, 0, 0)
		no.Store(nil)
		k.executed(send(h, order(c.what)), c.what, false)
		k.once(c.what)
	}
	failing := k.middleware(func(c *httpidem.Config) {
		c.Principal = func(r *http.Request) (string, error) {
			return r.Header.Get("User"), check("principal")
		}
		c.Authorize = func(*http.Request) error { return errors.New("secret of the database") }
	}).Handler(k.handler(k.created))
	r := send(failing, order("failing"))
	k.refused(r, http.StatusServiceUnavailable, "check_failed")
	require.Equal(k, retryAfter, r.header.Get("Retry-After"))
	require.NotContains(k, r.body, "secret")
	k.observed(httpidem.Unavailable, http.StatusServiceUnavailable)
	k.executed(send(h, order("failing")), "failing", false)
	k.once("failing")
	nobody := send(h, order("nobody").with(func(c *call) { c.by = "" }))
	k.refused(nobody, http.StatusUnauthorized, "principal_unknown")
}

// lookedUp is rule 21: a limiter behind Lookup sees new keys only, and a stopped request has not
// written to the store.
func lookedUp(k *kit) {
	if k.Blind {
		k.Skip("the store has no look-up, by its harness")
	}
	require.True(k, k.looks(k.store), "%T has no look-up", k.store)
	var calls, left atomic.Int64
	m := k.middleware(k.hooked(func(point) error { calls.Add(1); return nil }))
	inner := m.Handler(k.handler(k.created))
	h := m.Lookup(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if left.Add(-1) < 0 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	left.Store(2)
	k.executed(send(h, order("a")), "a", false)
	k.executed(send(h, order("b")), "b", false)
	before := calls.Load()
	require.Positive(k, before)
	for i := range 200 {
		require.Equal(k, http.StatusTooManyRequests,
			send(h, order(fmt.Sprint("random-", i))).status)
	}
	for range 20 {
		k.executed(send(h, order("a")), "a", true)
		k.observed(httpidem.Replayed, http.StatusCreated)
	}
	other := order("b").with(func(c *call) { c.body = "{}" })
	k.refused(send(h, other), http.StatusUnprocessableEntity, "request_signature_mismatch")
	require.Equal(k, before, calls.Load(), "calls of the store that may write")
	left.Store(1)
	k.executed(send(h, order("random-7")), "random-7", false) // no record was left
	k.once("a")
	k.once("random-7")
}

// capped is rule 21: The number of running keys of one principal is limited.
func capped(k *kit) {
	begun := make(chan struct{})
	open, release := k.barrier()
	h := k.middleware(func(c *httpidem.Config) {
		c.MaxLiveKeys = 2
	}).Handler(k.handler(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Wait") != "" {
			begun <- struct{}{}
			<-open
		}
		k.created(w, r)
	}))
	first := make(chan reply, 2)
	for _, key := range []string{"a", "b"} {
		go func() {
			first <- send(h,
				order(key).with(func(c *call) { c.header = http.Header{"Wait": {"yes"}} }))
		}()
		k.wait(begun, "the handler begins")
	}
	for range 3 {
		r := send(h, order("c"))
		k.refused(r, http.StatusTooManyRequests, "too_many_keys")
		require.Equal(k, retryAfter, r.header.Get("Retry-After"))
		k.observed(httpidem.Refused, http.StatusTooManyRequests)
		k.inFlight(send(h, order("a"))) // no further key
	}
	bobs := order("c").with(func(c *call) { c.by = "bob" })
	k.executed(send(h, bobs), "c", false)
	k.once("c")
	release()
	for range 2 {
		require.Equal(k, http.StatusCreated, (<-first).status)
	}
	require.Equal(k, http.StatusCreated, send(h, order("d")).status)
	k.once("d")
}
