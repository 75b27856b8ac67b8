package httpidem_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
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
	"github.com/idem-go/idem/internal/faketime"
	"github.com/idem-go/idem/internal/netproxy"
	"github.com/idem-go/idem/internal/testenv"
)

var errDown = fmt.Errorf("test: the store is down: %w", dedup.ErrUnavailable)

// faulty is a store that loses calls: with asked the request is lost, with answered only the
// answer.
type faulty struct {
	dedup.Store
	asked, answered atomic.Pointer[func(verb string) bool]
}

func lose(p *atomic.Pointer[func(string) bool], f func(verb string) bool) { p.Store(&f) }

func every(string) bool { return true }

// first loses the first n calls of a verb.
func first(n int64, verb string) func(string) bool {
	var calls atomic.Int64
	return func(v string) bool { return v == verb && calls.Add(1) <= n }
}

func (f *faulty) call(verb string, do func() error) error {
	if lost := f.asked.Load(); lost != nil && (*lost)(verb) {
		return errDown
	}
	err := do()
	if lost := f.answered.Load(); lost != nil && (*lost)(verb) {
		return errDown
	}
	return err
}

func (f *faulty) Claim(
	ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request,
	answers []dedup.Answer,
) error {
	return f.call("claim", func() error { return f.Store.Claim(ctx, t, lease, reqs, answers) })
}

func (f *faulty) Renew(ctx context.Context, lease time.Duration, claims []dedup.Claim) error {
	return f.call("renew", func() error { return f.Store.Renew(ctx, lease, claims) })
}

func (f *faulty) Complete(ctx context.Context, done []dedup.Completion) error {
	return f.call("complete", func() error { return f.Store.Complete(ctx, done) })
}

func (f *faulty) Release(ctx context.Context, claims []dedup.Release) error {
	return f.call("release", func() error { return f.Store.Release(ctx, claims) })
}

// inBubble runs a test with a service over a faulty store in memory, in fake time.
func inBubble(t *testing.T, test func(t *testing.T, s *service, f *faulty)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer faketime.Bound(t.Name())()
		test(t, newService(t), &faulty{Store: memstore.New()})
	})
}

// H-18: the store is unavailable when the answer is to be stored, and stays so. The client gets the
// real answer, if later. A retry gets the known state, and never causes a second run.
func TestStoreAwayAtTheEnd_H18(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service, f *faulty) {
		s.work = func(http.ResponseWriter, *http.Request) { lose(&f.asked, every) }
		here, there := s.claimed(f), s.claimed(f.Store)
		began := time.Now()
		rec := send(here, "a")
		require.Equal(t, "a in run 1", rec.Body.String())
		require.False(t, replayed(rec))
		require.Equal(t, httpidem.Unstored, s.last())
		require.Equal(t, 10*time.Second, time.Since(began).Round(time.Second),
			"the answer is held back while it may be stored")

		require.Equal(t, "store_unavailable", code(send(here, "a")))
		require.Equal(t, "unknown_outcome", code(send(there, "a")), "the lease is over")
		lose(&f.asked, func(string) bool { return false })
		for range 5 {
			require.Equal(t, "unknown_outcome", code(send(here, "a")))
			require.Equal(t, "unknown_outcome", code(send(there, "a")))
			time.Sleep(time.Hour)
		}
		require.Equal(t, 1, s.ran("a"))
	})
}

// H-18: a short outage has no effect. An answer that was stored, but not acknowledged, is not
// stored twice.
func TestShortOutage_H18(t *testing.T) {
	for _, verb := range []string{"claim", "complete"} {
		for _, lost := range []string{"asked", "answered"} {
			t.Run(verb+" not "+lost, func(t *testing.T) {
				inBubble(t, func(t *testing.T, s *service, f *faulty) {
					if lost == "asked" {
						lose(&f.asked, first(2, verb))
					} else {
						lose(&f.answered, first(2, verb))
					}
					h := s.claimed(f)
					for i := range 3 {
						rec := send(h, "a")
						require.Equal(t, "a in run 1", rec.Body.String())
						require.Equal(t, i > 0, replayed(rec))
					}
					require.Equal(t, []httpidem.Result{httpidem.Executed, httpidem.Replayed,
						httpidem.Replayed}, s.results())
				})
			})
		}
	}
}

// H-18: after NotApplied the key cannot be released. The answer is sent, and the key does not run
// again by a guess.
func TestStoreAwayAtRelease_H18(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service, f *faulty) {
		s.work = func(_ http.ResponseWriter, r *http.Request) {
			httpidem.NotApplied(r.Context())
			lose(&f.asked, every)
		}
		h := s.claimed(f)
		require.Equal(t, "a in run 1", send(h, "a").Body.String())
		require.Equal(t, httpidem.Forgotten, s.last())
		lose(&f.asked, func(string) bool { return false })
		require.Equal(t, "unknown_outcome", code(send(h, "a")))
		require.Equal(t, 1, s.ran("a"))
	})
}

// If the answer to a claim is lost for good, no handler runs, and the key stays free: the claim is
// released (rule 32).
func TestClaimUnheard_R01(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service, f *faulty) {
		lose(&f.answered, func(verb string) bool { return verb == "claim" })
		h := s.claimed(f)
		rec := send(h, "a")
		require.Equal(t, http.StatusServiceUnavailable, rec.Code)
		require.Equal(t, "1", rec.Header().Get("Retry-After"))
		require.Zero(t, s.ran("a"))
		lose(&f.answered, func(string) bool { return false })
		require.Equal(t, "a in run 1", send(h, "a").Body.String())
	})
}

// If the answer to a claim took longer than its lease, the claim has expired, and no handler runs
// under it (rule 49).
func TestLateClaim_Rule49(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service, f *faulty) {
		lose(&f.answered, func(verb string) bool {
			if verb == "claim" {
				time.Sleep(2 * time.Second)
			}
			return false
		})
		h := s.claimed(f, func(c *httpidem.Config) { c.StoreTimeout = time.Minute })
		require.Equal(t, "store_unavailable", code(send(h, "a")))
		require.Equal(t, httpidem.Unavailable, s.last())
		require.Zero(t, s.ran("a"))
		lose(&f.answered, func(string) bool { return false })
		require.Equal(t, "a in run 1", send(h, "a").Body.String())
	})
}

// redisTap is a proxy to Redis that can drop requests, or answers only.
type redisTap struct {
	*netproxy.Proxy
	noRequests, noAnswers atomic.Bool
}

func newRedisTap(t testing.TB, server string) *redisTap {
	p := &redisTap{}
	pipe := func(closed *atomic.Bool) netproxy.Pipe {
		return func(dst io.Writer, src io.Reader) {
			buf := make([]byte, 64<<10)
			for {
				n, err := src.Read(buf)
				if err != nil || closed.Load() {
					return
				}
				if _, err := dst.Write(buf[:n]); err != nil {
					return
				}
			}
		}
	}
	p.Proxy = netproxy.Start(t, server, func() netproxy.Link {
		return netproxy.Link{
			Up: pipe(&p.noRequests), Down: pipe(&p.noAnswers),
		}
	})
	return p
}

// H-18 on a real Redis that is unavailable when the handler ends, or that executes commands without
// an answer.
func TestRedisGoneInTheHandler_H18(t *testing.T) {
	for name, close := range map[string]func(*redisTap) *atomic.Bool{
		"requests": func(p *redisTap) *atomic.Bool { return &p.noRequests },
		"answers":  func(p *redisTap) *atomic.Bool { return &p.noAnswers },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct, prefix := testenv.Redis(t)
			tap := newRedisTap(t, direct.Options().Addr)
			opts := testenv.RedisOptions(t)
			opts.Addr = tap.Addr()
			client := redis.NewClient(opts)
			t.Cleanup(func() { _ = client.Close() })
			s := newService(t)
			here := s.claimed(redisstore.New(client, redisstore.Prefix(prefix)))
			// load the script first: an unknown script is not executed, and the answer that says so
			// would be lost
			send(here, "before")
			s.work = func(http.ResponseWriter, *http.Request) { close(tap).Store(true) }
			there := s.claimed(redisstore.New(direct, redisstore.Prefix(prefix)))

			rec := send(here, "a")
			require.Equal(t, "a in run 1", rec.Body.String())
			require.Equal(t, httpidem.Unstored, s.last())
			require.Equal(t, "store_unavailable", code(send(here, "a")))
			close(tap).Store(false)
			for range 3 {
				for _, h := range []http.Handler{there, here} {
					rec := settled(t, h, "a")
					if name == "answers" { // stored, but not acknowledged
						require.Equal(t, "a in run 1", rec.Body.String())
						require.True(t, replayed(rec))
						continue
					}
					require.Equal(t, "unknown_outcome", code(rec))
				}
			}
			require.Equal(t, 1, s.ran("a"))
		})
	}
}

// An outage of the store is logged when it begins and when it ends, not for each request, and
// without data that servers quote (G-04).
func TestOutageIsOneLine_G04(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service, store *faulty) {
		cfg := s.config(store)
		var log strings.Builder
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		h := s.handler(httpidem.New(cfg))
		for outage := 1; outage <= 2; outage++ {
			lose(&store.asked, every)
			for i := range 3 {
				require.Equal(t, http.StatusServiceUnavailable,
					send(h, fmt.Sprint("down-", outage, i)).Code)
			}
			lose(&store.asked, func(string) bool { return false })
			time.Sleep(5 * time.Second) // the quiet time that ends an outage
			for i := range 3 {
				require.Equal(t, http.StatusCreated, send(h, fmt.Sprint("back-", outage, i)).Code)
			}
			require.Equal(t, outage,
				strings.Count(log.String(), "idempotency store cannot be used"), log.String())
			require.Equal(t, outage,
				strings.Count(log.String(), "idempotency store can be used again"), log.String())
		}
	})
}
