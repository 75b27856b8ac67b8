package httpidem_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// zeros is a body of n bytes that takes no memory.
type zeros struct {
	left  int
	fill  byte
	read  *atomic.Int64 // bytes read
	stall chan struct{} // not nil: its last byte comes when this is closed
}

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	if z.left == 1 && z.stall != nil {
		<-z.stall
	}
	n := min(len(p), z.left)
	if z.stall != nil && z.left > 1 {
		n = min(n, z.left-1)
	}
	if z.fill == 0 {
		clear(p[:n]) // at once: the race detector slows down a loop over bytes
	} else {
		for i := range p[:n] {
			p[i] = z.fill
		}
	}
	z.left -= n
	if z.read != nil {
		z.read.Add(int64(n))
	}
	return n, nil
}

func (*zeros) Close() error { return nil }

// sendBody sends a body of n bytes.
func sendBody(
	ctx context.Context, h http.Handler, who, key string, b *zeros,
) *httptest.ResponseRecorder {
	r := post(ctx, "/orders", key)
	r.Body, r.ContentLength, r.GetBody = b, int64(b.left), nil
	r.Header.Set("User", who)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

func byUser(c *httpidem.Config) {
	c.Public = false
	c.Principal = func(r *http.Request) (string, error) { return r.Header.Get("User"), nil }
	c.Lease = 30 * time.Second
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Two keys have 257 copies each of 1 MiB, of which all but one wait. They hold two bodies, and not
// 514. The next request to run finds its own body.
func TestWaitingCopiesShareTheirBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, keys, copies = 1 << 20, 2, 257
		s := newService(t)
		var reads atomic.Int64
		end := make(chan struct{})
		s.work = func(_ http.ResponseWriter, r *http.Request) {
			<-end
			httpidem.NotApplied(r.Context()) // the next one runs
			n, err := io.Copy(io.Discard, r.Body)
			if err == nil && n == size {
				reads.Add(1)
			}
		}
		h := s.claimed(memstore.New(), byUser,
			func(c *httpidem.Config) { c.MaxPrincipalRequests, c.Wait = keys*copies, time.Hour })
		before := heap()
		answers := make(chan int, keys*copies)
		for i := range keys * copies {
			go func() {
				answers <- sendBody(t.Context(), h, "alice", fmt.Sprint("k", i%keys),
					&zeros{left: size}).Code
			}()
			synctest.Wait()
		}
		grown := heap() - before
		t.Logf("%d copies of %d bytes hold %.1f MiB", keys*copies, size, float64(grown)/(1<<20))
		require.Less(t, grown, int64(16<<20))
		close(end)
		for range keys * copies {
			require.Equal(t, http.StatusCreated, <-answers)
		}
		require.EqualValues(t, keys*copies, reads.Load())
		require.Less(t, heap()-before, int64(8<<20), "nothing is left")
	})
}

// Rule 21: requests count from before their bodies are read, by principal and in total, also after
// their clients have left, and without principals. They stop counting when their handlers return.
func TestRequestsAreBounded_Rule21(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*httpidem.Config)
		who    func(i int) string
		code   string
		status int
	}{
		"of one principal": {func(c *httpidem.Config) { byUser(c); c.MaxPrincipalRequests = 50 },
			func(int) string { return "alice" }, "too_many_requests", http.StatusTooManyRequests},
		"of all": {
			func(c *httpidem.Config) {
				byUser(c)
				c.MaxRequests = 50
			}, func(i int) string { return fmt.Sprint("user", i) }, "overloaded",
			http.StatusServiceUnavailable,
		},
		"public": {func(c *httpidem.Config) { c.MaxRequests = 50 }, func(int) string { return "" },
			"overloaded", http.StatusServiceUnavailable},
	} {
		for _, lookup := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, Lookup %v", name, lookup), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newService(t)
					end := make(chan struct{})
					s.work = func(http.ResponseWriter, *http.Request) { <-end }
					cfg := s.config(memstore.New())
					c.change(&cfg)
					cfg.Lease = 30 * time.Second
					m, err := httpidem.New(cfg)
					require.NoError(t, err)
					t.Cleanup(m.Close)
					h := m.Handler(s)
					if lookup {
						h = m.Lookup(h)
					}
					gone, hangUp := context.WithCancel(t.Context())
					codes := make(chan int, 50)
					for i := range 50 {
						go func() {
							codes <- sendBody(gone, h, c.who(i), fmt.Sprint("k", i),
								&zeros{left: 10}).Code
						}()
					}
					synctest.Wait()
					hangUp()
					for i := range 1000 {
						var read atomic.Int64
						rec := sendBody(t.Context(), h, c.who(i), fmt.Sprint("more", i),
							&zeros{left: 10, read: &read})
						require.Equal(t, c.status, rec.Code)
						require.Equal(t, c.code, code(rec))
						require.Equal(t, "1", rec.Header().Get("Retry-After"))
						require.Zero(t, read.Load(), "nothing of the body is read")
						require.Equal(t, httpidem.Refused, s.last())
					}
					if name == "of one principal" {
						close(end)
						require.Equal(t, http.StatusCreated,
							sendBody(t.Context(), h, "bob", "k", &zeros{left: 10}).Code)
					} else {
						close(end)
					}
					for range 50 {
						require.Equal(t, http.StatusCreated, <-codes)
					}
					for i := range 60 { // refused or not, all have released their share
						require.Equal(t, http.StatusCreated, sendBody(t.Context(), h, c.who(i),
							fmt.Sprint("after", i), &zeros{left: 10}).Code)
					}
				})
			})
		}
	}
}

// MaxBytes bounds the bytes that were read: an announced length does not count.
func TestBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 1000
		s := newService(t)
		h := s.claimed(memstore.New(), byUser,
			func(c *httpidem.Config) { c.MaxBody, c.MaxBytes = size, 3*size })
		stall := make(chan struct{})
		codes := make(chan int, 3)
		for i := range 3 { // all but the last byte of each
			go func() {
				codes <- sendBody(t.Context(), h, "alice", fmt.Sprint("slow", i),
					&zeros{left: size, stall: stall}).Code
			}()
		}
		synctest.Wait()
		for i := range 3 {
			rec := sendBody(t.Context(), h, "bob", fmt.Sprint("more", i), &zeros{left: size})
			require.Equal(t, http.StatusServiceUnavailable, rec.Code)
			require.Equal(t, "overloaded", code(rec))
			require.Equal(t, "1", rec.Header().Get("Retry-After"))
		}
		require.Equal(t, http.StatusCreated, sendBody(t.Context(), h, "bob", "small",
			&zeros{left: 3}).Code, "there is room for that")
		close(stall)
		for range 3 {
			require.Equal(t, http.StatusCreated, <-codes)
		}
		for i := range 10 {
			require.Equal(t, http.StatusCreated,
				sendBody(t.Context(), h, "bob", fmt.Sprint("after", i), &zeros{left: size}).Code)
		}
	})
}

// With a Config.Fingerprint, copies may have different bodies: each runs with its own, within the
// bound.
func TestCopiesWithOtherBodies(t *testing.T) {
	for name, change := range map[string]func(*httpidem.Config){
		"AnyPayload": func(c *httpidem.Config) { c.AnyPayload = true },
		"Fingerprint": func(c *httpidem.Config) {
			c.Fingerprint = func(_ *http.Request, p *httpidem.Payload) error {
				p.Body = nil
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const size = 1000
				s := newService(t)
				end := make(chan struct{})
				s.work = func(w http.ResponseWriter, r *http.Request) {
					<-end
					httpidem.NotApplied(r.Context()) // the next one runs
					body, err := io.ReadAll(r.Body)
					if err == nil && len(body) == size {
						w.Header().Set("Fill", fmt.Sprint(body[0], body[size-1]))
					}
				}
				h := s.claimed(memstore.New(), byUser, change, func(c *httpidem.Config) {
					c.Wait, c.MaxBody, c.MaxBytes = time.Hour, size, 4*size
				})
				answers := make(chan string, 5)
				// the fourth shares the body of the first
				for _, fill := range []byte{0, 1, 2, 0, 3} {
					go func() {
						rec := sendBody(t.Context(), h, "alice", "k",
							&zeros{left: size, fill: fill})
						answers <- fmt.Sprint(fill, rec.Code,
							rec.Header().Get("Fill") == fmt.Sprint(fill, fill))
					}()
					synctest.Wait()
				}
				require.Equal(t, "overloaded",
					code(sendBody(t.Context(), h, "alice", "k", &zeros{left: size, fill: 9})))
				close(end)
				var all []string
				for range 5 {
					all = append(all, <-answers)
				}
				require.ElementsMatch(t, []string{"0 201 true", "0 201 true", "1 201 true",
					"2 201 true", "3 201 true"}, all)
			})
		})
	}
}

// A panic before the handler releases the request, whether a function of the Config panics or the
// body.
func TestPanicsKeepNoPlace_Rule21(t *testing.T) {
	for name, panics := range map[string]func(c *httpidem.Config, r *http.Request){
		"Fingerprint": func(c *httpidem.Config, _ *http.Request) {
			c.Fingerprint = func(r *http.Request, _ *httpidem.Payload) error {
				if r.Header.Get("User") != "" {
					panic(http.ErrAbortHandler)
				}
				return nil
			}
		},
		"body": func(_ *httpidem.Config, r *http.Request) {
			r.Body, r.ContentLength = panicking{}, 5
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			r := post(t.Context(), "/orders", "panics")
			r.Header.Set("User", "panics")
			h := s.claimed(memstore.New(), func(c *httpidem.Config) {
				c.MaxRequests = 1
				panics(c, r)
			})
			require.Panics(t, func() { h.ServeHTTP(httptest.NewRecorder(), r) })
			require.Equal(t, http.StatusCreated, send(h, "next").Code)
		})
	}
}

// panicking is a body that panics.
type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic(http.ErrAbortHandler) }

func (panicking) Close() error { return nil }
