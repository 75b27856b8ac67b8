package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/internal/cli"
	"github.com/idem-go/idem/examples/internal/clitest"
	"github.com/idem-go/idem/examples/payments/provider"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/testenv"
)

// The tests of this file and the next run the program as processes of their own, on the real
// Postgres, and kill them.

// asProgram makes this test binary the program, so that the server under test has the race detector
// too.
const asProgram = "PAYMENTS_TEST_AS_PROGRAM"

func TestMain(m *testing.M) { clitest.Main(m, asProgram, main) }

// town is a database, a provider, and the address of the running process.
type town struct {
	t        *testing.T
	url      string
	pool     *pgxpool.Pool
	provider *provider.Server
	charges  string // URL of the provider
	faults   *faults
	base     atomic.Pointer[string] // URL of the API
	client   *http.Client
	mu       sync.Mutex
	log      bytes.Buffer // output of all processes
}

func newTown(t *testing.T) *town {
	t.Helper()
	s := &town{t: t, url: testenv.Postgres(t), faults: &faults{}}
	var err error
	s.pool, err = newPool(t.Context(), s.url, 5)
	require.NoError(t, err)
	t.Cleanup(s.pool.Close)
	s.provider = provider.New(s.faults.decide)
	srv := httptest.NewServer(s.provider)
	t.Cleanup(srv.Close)
	s.charges = srv.URL
	s.client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 40}}
	t.Cleanup(s.client.CloseIdleConnections)
	t.Cleanup(func() {
		if t.Failed() {
			text := s.said()
			t.Logf("processes said, at the end:\n%s", text[max(0, len(text)-6000):])
		}
	})
	return s
}

func (s *town) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// process is a running server.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

var listening = regexp.MustCompile(`msg=listening address=(\S+)`)

// start starts the program and waits until it listens.
func (s *town) start(more ...string) *process {
	s.t.Helper()
	args := append([]string{"-listen", "127.0.0.1:0", "-postgres", s.url, "-provider", s.charges,
		"-provider-timeout", "300ms", "-connections", "12"}, more...)
	cmd := exec.CommandContext(context.WithoutCancel(s.t.Context()), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	_, err := cmd.StdinPipe() // closed by Wait
	require.NoError(s.t, err)
	stderr, err := cmd.StderrPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, cmd.Start())
	p := &process{t: s.t, cmd: cmd, done: make(chan struct{})}
	up := make(chan string, 1)
	go func() {
		defer close(p.done)
		for in := bufio.NewScanner(stderr); in.Scan(); {
			s.mu.Lock()
			s.log.WriteString(in.Text() + "\n")
			s.mu.Unlock()
			if found := listening.FindStringSubmatch(in.Text()); found != nil {
				up <- "http://" + found[1]
			}
		}
		_ = cmd.Wait() // the state has the result
	}()
	s.t.Cleanup(p.kill)
	select {
	case base := <-up:
		s.base.Store(&base)
	case <-p.done:
		require.Fail(s.t, "it does not start", s.said())
	case <-time.After(30 * time.Second):
		require.Fail(s.t, "it does not listen", s.said())
	}
	return p
}

// kill sends SIGKILL and waits.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // may have ended already
	<-p.done
}

// terminate sends SIGTERM and returns the exit code.
func (p *process) terminate() int {
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// post sends a payment once.
func (s *town) post(ctx context.Context, key, body string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, *s.base.Load()+"/payments", strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(httpidem.DefaultHeader, key)
	res, err := s.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, string(b), res.Header.Get(httpidem.DefaultReplayedHeader) == "true"}, err
}

// insist sends a payment until the answer does not ask for a retry.
func (s *town) insist(ctx context.Context, key, body string) (a answer, tries int, err error) {
	for ctx.Err() == nil {
		tries++
		a, err = s.post(ctx, key, body)
		if err == nil && a.status < 500 && a.status != http.StatusConflict {
			return a, tries, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return a, tries, fmt.Errorf("%s: no answer after %d tries; the last: %d %s, %w", key, tries, a.status, a.body, err)
}

// The process is killed after the charge and before the commit. Only the charge remains, and the
// retry finds it under the same key.
func TestKilledBetweenChargeAndCommit_Idempotent(t *testing.T) {
	s := newTown(t)
	first := s.start("-provider-timeout", "10s")
	s.faults.set(func(r provider.Request) provider.Fault {
		if r.Attempt > 1 {
			return provider.Fault{}
		}
		return provider.Fault{AfterCharge: func(context.Context) { first.kill() }}
	})
	_, err := s.post(t.Context(), "k-1", wish("o-1", "ada", 995))
	require.Error(t, err)
	require.Len(t, s.provider.Charges(), 1)
	require.Zero(t, count(t, s.pool, `SELECT count(*) FROM payments`))
	require.Zero(t, count(t, s.pool, `SELECT count(*) FROM processed_events`))

	s.start("-provider-timeout", "10s") // the provider is asked once
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	a, _, err := s.insist(ctx, "k-1", wish("o-1", "ada", 995))
	require.NoError(t, err)
	require.Equal(t, a.id(t), s.provider.Charges()[0].Reference)
	require.Len(t, s.provider.Charges(), 1)
	require.Equal(t, 2, s.provider.Attempts(s.provider.Charges()[0].Key))
	require.Equal(t, 1, count(t, s.pool, `SELECT count(*) FROM payments WHERE charge_id = $1`, s.provider.Charges()[0].ID))
	again, err := s.post(t.Context(), "k-1", wish("o-1", "ada", 995))
	require.NoError(t, err)
	require.Equal(t, answer{a.status, a.body, true}, again)
}

// SIGTERM while a payment is at the provider: the payment is finished and answered, and the exit
// code is 0. The same holds for a payment after its client has disconnected (H-05).
func TestStopsInGoodOrder(t *testing.T) {
	s := newTown(t)
	p := s.start("-provider-timeout", "10s")
	charged, goOn := make(chan struct{}, 2), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	s.faults.set(func(provider.Request) provider.Fault {
		return provider.Fault{AfterCharge: func(context.Context) {
			charged <- struct{}{}
			<-goOn
		}}
	})
	got := make(chan answer, 1)
	var all sync.WaitGroup
	hungUp, hangUp := context.WithCancel(t.Context())
	all.Go(func() {
		a, err := s.post(t.Context(), "k-1", wish("o-1", "ada", 995))
		if err != nil {
			t.Error(err)
		}
		got <- a
	})
	all.Go(func() {
		if _, err := s.post(hungUp, "k-2", wish("o-2", "bob", 995)); err == nil {
			t.Error("it has not hung up")
		}
	})
	<-charged
	<-charged
	hangUp()
	code := make(chan int, 1)
	all.Go(func() { code <- p.terminate() })
	require.Eventually(t, func() bool { return strings.Contains(s.said(), "no new requests") }, 10*time.Second, 5*time.Millisecond)
	release()
	all.Wait()
	require.Equal(t, cli.ExitOK, <-code)
	(<-got).id(t)
	require.Equal(t, 2, count(t, s.pool, `SELECT count(*) FROM payments`))
	require.Len(t, s.provider.Charges(), 2)
}
