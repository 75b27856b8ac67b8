package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/testenv"
)

// process is the example as an operating system process, which tests kill and start again at the
// same address.
type process struct {
	t      testing.TB
	path   string
	addr   string
	args   []string
	client *http.Client
	cmd    *exec.Cmd
	stderr *bytes.Buffer
}

// startProcess builds the example and starts it. Cleanup kills it.
func startProcess(t testing.TB, postgres, redis string, args ...string) *process {
	t.Helper()
	p := &process{
		t: t, path: filepath.Join(t.TempDir(), "transfer"), addr: testenv.FreeAddr(t),
		client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}},
	}
	p.args = append([]string{"-listen", p.addr, "-postgres", postgres, "-redis", redis}, args...)
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", p.path, ".").CombinedOutput()
	require.NoError(t, err, "build: %s", out)
	p.start()
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.kill()
		}
		if t.Failed() {
			text := p.stderr.String()
			t.Logf("the process said last:\n%s", text[max(0, len(text)-4000):])
		}
	})
	return p
}

// start starts the process and waits until it serves.
func (p *process) start() {
	p.t.Helper()
	p.stderr = &bytes.Buffer{} // exec writes to it until Wait returns
	p.cmd = exec.Command(p.path, p.args...)
	p.cmd.Stderr = p.stderr
	require.NoError(p.t, p.cmd.Start())
	p.waitFor(p.healthy)
}

func (p *process) healthy() bool {
	res, err := p.client.Get("http://" + p.addr + "/healthz")
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// kill sends SIGKILL and waits.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // killed: the status has no meaning
}

// waitFor polls until ok returns true.
func (p *process) waitFor(ok func() bool) {
	p.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		require.True(p.t, time.Now().Before(deadline), "not within 30s")
		wait(p.t.Context(), 10*time.Millisecond)
	}
}

// post sends a transfer with a client.
func (p *process) post(ctx context.Context, client *http.Client, key, body string) (status int, text string, err error) {
	ctx = httpidem.WithKey(ctx, key)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.addr+"/transfers", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

// insisting returns a client that retries for a minute until it gets an answer, and counts its
// requests.
func insisting(t testing.TB, sent *atomic.Int64) *http.Client {
	base := &http.Transport{MaxIdleConnsPerHost: 64, ResponseHeaderTimeout: 30 * time.Second}
	t.Cleanup(base.CloseIdleConnections)
	return &http.Client{Transport: &httpidem.Transport{
		Base:     counted{base, sent},
		Attempts: 1000, Backoff: 20 * time.Millisecond, MaxBackoff: 500 * time.Millisecond, MaxElapsed: time.Minute,
	}}
}

type counted struct {
	http.RoundTripper
	sent *atomic.Int64
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.sent.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// wait pauses until d has passed or ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
