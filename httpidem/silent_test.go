package httpidem_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/netproxy"
	"github.com/idem-go/idem/internal/testenv"
)

// gate holds up calls while it is shut.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // nil: open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) reopen() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

func (g *gate) pass() {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open != nil {
		<-open
	}
}

// deaf is a store that does not answer while its gate is shut, and ignores contexts.
type deaf struct {
	dedup.Store
	gate
}

func (s *deaf) Claim(
	ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request,
	answers []dedup.Answer,
) error {
	s.pass()
	return s.Store.Claim(context.WithoutCancel(ctx), t, lease, reqs, answers)
}

func (s *deaf) Release(ctx context.Context, claims []dedup.Release) error {
	s.pass()
	return s.Store.Release(context.WithoutCancel(ctx), claims)
}

func (s *deaf) Look(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	s.pass()
	return s.Store.(dedup.Looker).Look(context.WithoutCancel(ctx), reqs, answers)
}

// asked is the result of a request, and its duration.
type asked struct {
	*httptest.ResponseRecorder
	took time.Duration
}

// sendAll sends n requests at once, with keys that begin with name.
func sendAll(h http.Handler, n int, name string) []asked {
	all := make([]asked, n)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			began := time.Now()
			all[i] = asked{ResponseRecorder: send(h, fmt.Sprint(name, i))}
			all[i].took = time.Since(began)
		})
	}
	wg.Wait()
	return all
}

// H-18: a store that accepts calls and never answers. Each request ends within the time-out, and
// after some failures at once: it is answered 503, or runs with FailOpen. When the store answers
// again, so does the middleware, and no effect of the outage remains.
func TestStoreThatNeverAnswers_H18(t *testing.T) {
	for _, open := range []bool{false, true} {
		for _, lookup := range []bool{false, true} {
			for _, n := range []int{1, 60} {
				t.Run(fmt.Sprintf("FailOpen %v, Lookup %v, %d requests", open, lookup, n),
					func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							s, store := newService(t), &deaf{Store: memstore.New()}
							cfg := s.config(store)
							cfg.FailOpen, cfg.Lease = open, 30*time.Second
							m, err := httpidem.New(cfg)
							require.NoError(t, err)
							t.Cleanup(m.Close)
							h := m.Handler(s)
							if lookup {
								h = m.Lookup(h)
							}
							check := func(all []asked, took time.Duration) {
								t.Helper()
								for _, a := range all {
									if open {
										require.Equal(t, http.StatusCreated, a.Code)
									} else {
										require.Equal(t, "store_unavailable",
											code(a.ResponseRecorder))
										require.Equal(t, "1", a.Header().Get("Retry-After"))
									}
									require.Equal(t, took, a.took)
								}
							}
							store.shut()
							for i := range 3 { // the third failure opens the circuit breaker
								if i == 0 || n == 1 {
									check(sendAll(h, n, fmt.Sprint("slow-", i, "-")),
										httpidem.DefaultStoreTimeout)
								}
							}
							check(sendAll(h, n, "quick-"), 0)
							store.reopen()
							time.Sleep(time.Second)
							send(h, "back")
							for _, a := range sendAll(h, n, "back-") {
								require.Equal(t, http.StatusCreated, a.Code)
							}
							for _, a := range sendAll(h, n, "back-") {
								require.True(t, replayed(a.ResponseRecorder))
							}
							for i, a := range sendAll(h, n, "slow-0-") {
								require.Equal(t, http.StatusCreated, a.Code,
									"what it granted unheard was given back")
								require.False(t, replayed(a.ResponseRecorder))
								want := 1
								if open {
									want = 2
								}
								require.Equal(t, want, s.ran(fmt.Sprint("slow-0-", i)))
							}
						})
					})
			}
		}
	}
}

// H-18 on a real Redis behind a network that drops everything, with a client of default settings:
// its read time-out is twice as long, and it tries four times.
func TestRedisThatNeverAnswers_H18(t *testing.T) {
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprintf("FailOpen %v", open), func(t *testing.T) {
			t.Parallel()
			direct, prefix := testenv.Redis(t)
			var network gate
			network.shut() // shut and open again, so that its state differs from the zero value
			network.reopen()
			pipe := func(dst io.Writer, src io.Reader) {
				buf := make([]byte, 64<<10)
				for {
					n, err := src.Read(buf)
					if err != nil {
						return
					}
					network.pass()
					if _, err := dst.Write(buf[:n]); err != nil {
						return
					}
				}
			}
			proxy := netproxy.Start(t, direct.Options().Addr,
				func() netproxy.Link { return netproxy.Link{Up: pipe, Down: pipe} })
			t.Cleanup(network.reopen)
			opts := testenv.RedisOptions(t)
			opts.Addr = proxy.Addr()
			client := redis.NewClient(opts)
			t.Cleanup(func() { _ = client.Close() })
			s := newService(t)
			h := s.claimed(redisstore.New(client, redisstore.Prefix(prefix)),
				func(c *httpidem.Config) {
					c.FailOpen, c.Lease = open, 30*time.Second
				})
			require.Equal(t, http.StatusCreated, send(h, "before").Code)
			check := func(all []asked, limit time.Duration) (slow int) {
				t.Helper()
				for _, a := range all {
					if open {
						require.Equal(t, http.StatusCreated, a.Code)
					} else {
						require.Equal(t, "store_unavailable", code(a.ResponseRecorder))
					}
					require.Less(t, a.took, httpidem.DefaultStoreTimeout+time.Second)
					if a.took > limit {
						slow++
					}
				}
				return slow
			}
			network.shut()
			check(sendAll(h, 60, "slow-"), 0)
			require.LessOrEqual(t, check(sendAll(h, 60, "quick-"), 500*time.Millisecond), 1,
				"except for calls of the half-open circuit breaker")
			network.reopen()
			require.Eventually(t, func() bool { return replayed(send(h, "before")) },
				15*time.Second, 20*time.Millisecond)
			var again atomic.Int64
			for i := range 60 { // no key was claimed for good
				key := fmt.Sprint("slow-", i)
				rec := settled(t, h, key)
				require.Equal(t, http.StatusCreated, rec.Code, rec.Body)
				again.Add(int64(s.ran(key)))
			}
			want := int64(60)
			if open {
				want = 120
			}
			require.Equal(t, want, again.Load())
		})
	}
}
