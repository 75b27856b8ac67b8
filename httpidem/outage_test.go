package httpidem_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// journal is a log that a test reads.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) to(c *httpidem.Config) { c.Logger = slog.New(slog.NewTextHandler(j, nil)) }

// take returns the lines since the last call.
func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	text := strings.TrimSpace(j.buf.String())
	j.buf.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// An outage of the store is one line at its beginning and one at its end, for any number of
// requests, even if the store answers now and then meanwhile.
func TestOutageIsLoggedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*httpidem.Config)
		begins  string
		results httpidem.Result
	}{
		"closed": {func(*httpidem.Config) {}, `level=ERROR msg="idempotency store cannot be used`,
			httpidem.Unavailable},
		"open": {func(c *httpidem.Config) { c.FailOpen = true },
			`level=WARN msg="requests run without the idempotency store"`, httpidem.Unguarded},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *service, f *faulty) {
				var log journal
				h := s.claimed(f, log.to, c.change)
				for round := range 2 {
					began := time.Now()
					for i := range 20 {
						lose(&f.asked, every)
						send(h, fmt.Sprintf("down-%d-%d", round, i))
						require.Equal(t, c.results, s.last())
						lose(&f.asked, func(string) bool { return false })
						send(h, fmt.Sprintf("up-%d-%d", round, i))
						require.Equal(t, httpidem.Executed, s.last())
					}
					lines := log.take()
					require.Len(t, lines, 1, "%s", lines)
					require.Contains(t, lines[0], c.begins)
					require.Contains(t, lines[0], "idempotency_key=down-")
					lasted := time.Since(began)
					time.Sleep(4900 * time.Millisecond)
					send(h, fmt.Sprint("calm-", round))
					require.Empty(t, log.take())
					time.Sleep(time.Minute)
					for i := range 5 {
						send(h, fmt.Sprintf("over-%d-%d", round, i))
					}
					lines = log.take()
					require.Len(t, lines, 1, "%s", lines)
					require.Contains(t, lines[0],
						`level=INFO msg="idempotency store can be used again"`)
					require.Contains(t, lines[0], "requests=20")
					require.Less(t, lasted, 5*time.Second,
						"else the figures of this test are wrong")
				}
			})
		})
	}
}

// booth has transactions without a store, unless it is unavailable.
type booth struct {
	dedup.Store
	down bool
}

func (b *booth) ClaimTx(
	_ context.Context, _ time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(*booth) ([]dedup.Completion, error),
) error {
	if b.down {
		return errDown
	}
	time.Sleep(2 * time.Second)
	answers[0] = dedup.Answer{Verdict: dedup.Fresh, Fence: 1}
	_, err := fn(b)
	return err
}

// The same in transactions. A forgotten answer proves that the store works. Waited ends where the
// handler begins.
func TestOutageIsLoggedOnce_Tx(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service, f *faulty) {
		var log journal
		b := &booth{Store: f, down: true}
		cfg := s.config(b)
		cfg.StoreTimeout = time.Minute
		log.to(&cfg)
		h := s.handler(httpidem.NewTx[*booth](cfg))
		for i := range 5 {
			send(h, fmt.Sprint("down-", i))
			require.Equal(t, httpidem.Unavailable, s.last())
		}
		require.Len(t, log.take(), 1)
		b.down = false
		time.Sleep(5 * time.Second)
		s.work = func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(3 * time.Second)
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		send(h, "forgotten")
		o := s.seen[len(s.seen)-1]
		require.Equal(t, httpidem.Forgotten, o.Result)
		require.Equal(t, []time.Duration{2 * time.Second, 5 * time.Second},
			[]time.Duration{o.Waited, o.Took})
		require.Len(t, log.take(), 1)
	})
}

// A panic of a handler is observed, also without the store.
func TestObserve_PanicWithoutTheStore(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service, f *faulty) {
		s.work = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		h := s.claimed(f, func(c *httpidem.Config) { c.FailOpen = true })
		lose(&f.asked, every)
		require.Panics(t, func() { send(h, "a") })
		require.Equal(t, []httpidem.Result{httpidem.Panicked}, s.results())
	})
}

// Waited is all of a request that runs no handler, and otherwise the time before the handler.
func TestObserve_Waited(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service, f *faulty) {
		s.work = func(http.ResponseWriter, *http.Request) { time.Sleep(3 * time.Second) }
		h := s.claimed(f,
			func(c *httpidem.Config) { c.Wait, c.Lease = time.Minute, 30*time.Second })
		first := make(chan struct{})
		go func() {
			defer close(first)
			send(h, "a")
		}()
		time.Sleep(time.Second)
		send(h, "a")
		<-first
		times := map[httpidem.Result][]time.Duration{}
		for _, o := range s.seen { // both requests end at the same moment
			times[o.Result] = append(times[o.Result], o.Waited, o.Took)
		}
		require.Equal(t, map[httpidem.Result][]time.Duration{
			httpidem.Executed: {0, 3 * time.Second},
			httpidem.Replayed: {2 * time.Second, 2 * time.Second},
		}, times)
	})
}

// A server that closes connections before the longest keyed request may end is reported once.
func TestWriteTimeoutIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		write   time.Duration
		streams bool
		longest string // empty: not reported
	}{
		"none": {0, true, ""}, "15 s": {15 * time.Second, false, "26.5s"},
		"just too short":                       {26*time.Second + 499*time.Millisecond, false, "26.5s"},
		"long enough":                          {26*time.Second + 500*time.Millisecond, false, ""},
		"just too short for a streamed answer": {36*time.Second + 499*time.Millisecond, true, "36.5s"},
		"long enough for a streamed answer":    {36*time.Second + 500*time.Millisecond, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			var log journal
			h := s.claimed(memstore.New(), log.to,
				func(cfg *httpidem.Config) {
					cfg.Timeout, cfg.Wait = 10*time.Second, 5*time.Second
					cfg.StreamOnFlush = c.streams
				})
			server := httptest.NewUnstartedServer(h)
			server.Config.WriteTimeout = c.write
			server.Start()
			defer server.Close()
			for i := range 3 {
				resp, err := server.Client().Do(post(t.Context(), server.URL, fmt.Sprint("a", i)))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, http.StatusCreated, resp.StatusCode)
			}
			lines := log.take()
			if c.longest == "" {
				require.Empty(t, lines)
				return
			}
			require.Len(t, lines, 1)
			require.Contains(t, lines[0], "WriteTimeout")
			require.Contains(t, lines[0], "longest_request="+c.longest)
		})
	}
}
