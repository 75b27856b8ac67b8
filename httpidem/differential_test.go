package httpidem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/memstore"
)

// Handlers made of random steps behave the same with and without the middleware, for the client and
// for themselves. A second request then gets the stored answer (H-16).
func TestDifferential_H16(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(map[bool]string{false: "HTTP1", true: "HTTP2"}[h2], func(t *testing.T) {
			d := newDifferential(t, h2)
			first := rand.Uint64N(1 << 32)
			for seed := first; seed < first+200; seed++ {
				d.check(t, seed)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// Cases that random steps have found.
func TestDifferential_Again_H16(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		d := newDifferential(t, h2)
		for _, seed := range []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10} {
			d.check(t, seed)
		}
	}
}

type differential struct {
	h2       bool
	plain    *httptest.Server
	guarded  *httptest.Server
	mu       sync.Mutex
	programs map[string]*program
	traces   map[string]*trace
}

func newDifferential(t *testing.T, h2 bool) *differential {
	d := &differential{h2: h2, programs: map[string]*program{}, traces: map[string]*trace{}}
	m, err := New(Config{
		Store: memstore.New(), Scope: "test", Public: true, AnyPayload: true,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	start := func(h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(inFront(h))
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.Config.Protocols = protocols(h2)
		s.Start()
		t.Cleanup(s.Close)
		return s
	}
	d.plain, d.guarded = start(d.handler("plain")), start(m.Handler(d.handler("guarded")))
	return d
}

// protocols has HTTP/2 without TLS, which saves the time of handshakes.
func protocols(h2 bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(!h2)
	p.SetUnencryptedHTTP2(h2)
	return p
}

// inFront is middleware that sets headers before, and a trailer of its own after.
func inFront(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "same")
		w.Header().Set("Vary", "Origin")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		next.ServeHTTP(w, r)
	})
}

// trace is a handler's view of a request.
type trace struct {
	mu    sync.Mutex
	lines []string
	body  []byte // the bytes that it could write
	done  chan struct{}
}

func (t *trace) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

func (d *differential) handler(which string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		p := d.programs[r.URL.Path]
		tr := &trace{done: make(chan struct{})}
		d.traces[which+r.URL.Path] = tr
		d.mu.Unlock()
		defer close(tr.done)
		for _, s := range p.steps {
			s.do(w, r, tr)
		}
	})
}

func (d *differential) check(t *testing.T, seed uint64) {
	t.Helper()
	path := "/" + strconv.FormatUint(seed, 10)
	p := newProgram(seed, d.h2)
	d.mu.Lock()
	d.programs[path] = p
	d.mu.Unlock()
	explain := fmt.Sprintf("seed %d, HTTP/2 %v:\n%s", seed, d.h2, p)

	want, got := d.ask(t, d.plain, path, p), d.ask(t, d.guarded, path, p)
	plain, guarded := d.traceOf("plain"+path), d.traceOf("guarded"+path)
	require.Equal(t, plain.lines, guarded.lines, "handler sees the same: %s", explain)
	require.Equal(t, want.infos, got.infos, "1xx: %s", explain)
	require.NotErrorIs(t, errors.Join(want.err, want.bodyErr, got.err, got.bodyErr),
		context.DeadlineExceeded, explain)
	replay := d.ask(t, d.guarded, path, p)
	if p.breaks {
		require.True(t, want.broken() || p.declared ||
			noBody(want.status), "broken without, unless the whole answer has left: %s", explain)
		require.True(t, got.broken(), "broken with: %s", explain)
		require.Equal(t, http.StatusInternalServerError, replay.status, explain)
		require.Equal(t, "true", replay.header.Get(DefaultReplayedHeader), explain)
		return
	}
	require.Equal(t, want, got, explain)
	if want.err == nil {
		require.Equal(t, d.h2, got.proto == "HTTP/2.0")
	}

	require.Equal(t, "true", replay.header.Get(DefaultReplayedHeader), explain)
	// less than announced: no whole answer to replay
	if got.broken() && !noBody(got.status) {
		require.Equal(t, http.StatusConflict, replay.status, explain)
		return
	}
	require.Equal(t, got.status, replay.status, explain)
	require.NoError(t, replay.err, explain)
	require.Equal(t, string(guarded.body), replay.body, explain)
	for _, name := range DefaultReplayHeaders() {
		if name == "Vary" {
			require.Subset(t, replay.header[name], got.header[name], explain)
			continue
		}
		require.Equal(t, got.header[name], replay.header[name], "%s: %s", name, explain)
		if got.sendsTrailers() {
			require.Equal(t, got.trailer[name], replay.trailer[name], "trailer %s: %s", name,
				explain)
		}
	}
	for _, name := range append(neverReplayed(), "X-Trace") {
		if !slices.Contains([]string{"Date", "Content-Length", "Trailer", DefaultReplayedHeader,
			"Connection"}, name) {
			require.Empty(t, replay.header[name], "%s: %s", name, explain)
		}
	}
	require.Equal(t, "same", replay.header.Get("X-Request-Id"), explain)
}

func (d *differential) traceOf(name string) *trace {
	d.mu.Lock()
	tr := d.traces[name]
	d.mu.Unlock()
	<-tr.done
	return tr
}

// seen is the client's view.
type seen struct {
	err      error // of the request, by kind
	bodyErr  error
	status   int
	proto    string
	header   http.Header
	trailer  http.Header
	length   int64
	encoding []string
	body     string
	infos    []string
}

func (s *seen) broken() bool { return s.err != nil || s.bodyErr != nil }

func (s *seen) sendsTrailers() bool { return len(s.trailer) > 0 }

func (d *differential) ask(t *testing.T, s *httptest.Server, path string, p *program) *seen {
	t.Helper()
	out := &seen{}
	ctx := httptrace.WithClientTrace(t.Context(),
		&httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			h.Del("Date")
			out.infos = append(out.infos, fmt.Sprint(code, h))
			return nil
		}})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path,
		strings.NewReader(strings.Repeat("r", p.request)))
	require.NoError(t, err)
	req.Header.Set(DefaultHeader, strings.Trim(path, "/"))
	// A connection for each request, so that net/http does not repeat a request when it breaks
	// (H-20).
	transport := &http.Transport{DisableCompression: true, Protocols: protocols(d.h2)}
	defer transport.CloseIdleConnections()
	client := &http.Client{
		Timeout: 20 * time.Second, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	resp, err := client.Do(req)
	if err != nil {
		out.err = kind(err)
		return out
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	resp.Header.Del("Date")
	out.bodyErr, out.body, out.trailer = kind(err), string(body), resp.Trailer
	out.status, out.proto, out.header, out.length, out.encoding = resp.StatusCode, resp.Proto,
		resp.Header, resp.ContentLength, resp.TransferEncoding
	return out
}

func kind(err error) error {
	for _, k := range []error{io.ErrUnexpectedEOF, io.EOF, context.Canceled,
		context.DeadlineExceeded} {
		if errors.Is(err, k) {
			return k
		}
	}
	if err != nil {
		return errors.New("other: " + strings.Split(err.Error(), "127.0.0.1")[0])
	}
	return nil
}

// program is a random handler.
type program struct {
	steps    []step
	breaks   bool // breaks the connection
	declared bool // declares its length
	request  int
}

type step struct {
	name string
	do   func(w http.ResponseWriter, r *http.Request, t *trace)
}

func (p *program) String() string {
	var b strings.Builder
	for _, s := range p.steps {
		fmt.Fprintln(&b, "  "+s.name)
	}
	return b.String()
}

var sizes = []int{0, 0, 1, 5, 100, 511, 512, 513, 1535, 1536, 1537, 2047, 2048, 2049, 4000, 4095,
	4096, 4097, 10_000, 100_000}

type generator struct {
	*rand.Rand
	p     *program
	h2    bool
	wrote int // bytes of all later writes, if they are allowed
	froms bool
}

func newProgram(seed uint64, h2 bool) *program {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 16)), p: &program{}, h2: h2}
	g.p.request = g.IntN(3) * g.IntN(60_000)
	if g.chance(40) {
		g.readBody()
	}
	for range g.IntN(12) {
		g.next()
	}
	if g.chance(20) {
		g.declareLength()
	}
	if g.chance(12) {
		g.breakIt()
	}
	return g.p
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

func (g *generator) add(name string, do func(w http.ResponseWriter, r *http.Request, t *trace)) {
	g.p.steps = append(g.p.steps, step{name, do})
}

func (g *generator) next() {
	switch n := g.IntN(100); {
	case n < 30:
		g.header()
	case n < 35:
		g.trailer()
	case n < 48:
		g.status()
	case n < 75:
		g.write()
	case n < 83:
		g.readFrom()
	case n < 92:
		g.flush()
	default:
		g.controller()
	}
}

func (g *generator) header() {
	name := pick(g, "Content-Type", "Etag", "Location", "Vary", "Cache-Control", "X-Trace",
		"Set-Cookie", "Link", "Content-Encoding",
		"Access-Control-Allow-Origin", "x-raw", "Traceparent", "X-Request-Id")
	value := pick(g, "a", "b, c", "text/plain", "", "\xff\xfe", "x\r\ny")
	// as an unsendable trailer it would hang net/http's HTTP/2
	if name == "X-Request-Id" || name == "Etag" {
		value = "same"
	}
	switch g.IntN(6) {
	case 0, 1:
		g.add("Set "+name+" "+strconv.Quote(value),
			func(w http.ResponseWriter, _ *http.Request, _ *trace) { w.Header().Set(name, value) })
	case 2, 3:
		g.add("Add "+name+" "+strconv.Quote(value),
			func(w http.ResponseWriter, _ *http.Request, _ *trace) { w.Header().Add(name, value) })
	case 4:
		g.add("Del "+name,
			func(w http.ResponseWriter, _ *http.Request, _ *trace) { w.Header().Del(name) })
	default:
		// no trailer: a nil one hangs net/http's HTTP/2
		name := pick(g, "Content-Type", "Date", "Link", "content-type")
		g.add("nil "+name,
			func(w http.ResponseWriter, _ *http.Request, _ *trace) { w.Header()[name] = nil })
	}
	if g.chance(20) {
		g.add("see header",
			func(w http.ResponseWriter, _ *http.Request, t *trace) { t.note("%v", w.Header()) })
	}
}

func (g *generator) trailer() {
	name := pick(g, "X-Sum", "Content-Digest", "Etag")
	value := pick(g, "1", "2")
	switch g.IntN(3) {
	case 0:
		g.add("declare "+name, func(w http.ResponseWriter, _ *http.Request, _ *trace) {
			w.Header().Add("Trailer", name)
		})
	case 1:
		g.add("trailer "+name,
			func(w http.ResponseWriter, _ *http.Request, _ *trace) { w.Header().Set(name, value) })
	default:
		g.add("prefixed "+name, func(w http.ResponseWriter, _ *http.Request, _ *trace) {
			w.Header().Set(http.TrailerPrefix+name, value)
		})
	}
}

func (g *generator) status() {
	code := pick(g, 100, 102, 103, 103, 199, 200, 200, 201, 202, 204, 205, 206, 301, 304, 400, 404,
		418, 500, 503, 599, 600, 999)
	g.add(fmt.Sprint("WriteHeader ", code),
		func(w http.ResponseWriter, _ *http.Request, _ *trace) { w.WriteHeader(code) })
}

// content has a type that its first bytes determine.
func content(g *generator, n int) string {
	s := pick(g, "<html>", "%PDF-", "plain ", "\x00\x01\x02", "GIF89a") + strings.Repeat("x", n)
	return s[:n]
}

func (g *generator) write() {
	b := content(g, pick(g, sizes...))
	g.wrote += len(b)
	g.add(fmt.Sprintf("Write %d %.6q", len(b), b),
		func(w http.ResponseWriter, _ *http.Request, t *trace) {
			n, err := io.WriteString(w, b)
			t.body = append(t.body, b[:n]...)
			t.note("%d %v", n, err)
		})
}

func (g *generator) readFrom() {
	b := content(g, pick(g, sizes...))
	fails := g.chance(15)
	g.wrote += len(b)
	g.froms = true
	g.add(fmt.Sprintf("ReadFrom %d %.6q %v", len(b), b, fails),
		func(w http.ResponseWriter, _ *http.Request, t *trace) {
			var src io.Reader = &readerOnly{[]byte(b)}
			if fails {
				src = io.MultiReader(src, errReader{})
			}
			n, err := io.Copy(w, src)
			t.body = append(t.body, b[:n]...)
			t.note("%d %v", n, brief(err))
		})
}

// brief returns an error without network addresses.
func brief(err error) string {
	text := fmt.Sprint(err)
	return strings.TrimSpace(text[strings.LastIndex(text, ": ")+1:])
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("source failed") }

func (g *generator) flush() {
	if g.chance(50) {
		g.add("Flush",
			func(w http.ResponseWriter, _ *http.Request, _ *trace) { w.(http.Flusher).Flush() })
		return
	}
	g.add("controller Flush", func(w http.ResponseWriter, _ *http.Request, t *trace) {
		t.note("%v", http.NewResponseController(w).Flush())
	})
}

func (g *generator) controller() {
	n := g.IntN(3)
	g.add(fmt.Sprint("controller ", n), func(w http.ResponseWriter, _ *http.Request, t *trace) {
		c := http.NewResponseController(w)
		t.note("%v", [...]func() error{
			func() error { return c.SetReadDeadline(time.Now().Add(time.Hour)) },
			func() error { return c.SetWriteDeadline(time.Now().Add(time.Hour)) },
			c.EnableFullDuplex,
		}[n]())
	})
}

func (g *generator) readBody() {
	n := g.IntN(g.p.request + 10)
	g.add(fmt.Sprint("read ", n), func(_ http.ResponseWriter, r *http.Request, t *trace) {
		b, err := io.ReadAll(io.LimitReader(r.Body, int64(n)))
		t.note("%d %v %d", len(b), err, r.ContentLength)
		if n%3 == 0 {
			t.note("%v", r.Body.Close())
			_, err := r.Body.Read(make([]byte, 1))
			t.note("closed: %v", err != nil) // each protocol has its own error
		}
	})
}

// declareLength announces the written length, more, less, or an invalid value. HTTP/2 notices a
// smaller value late, and a ReadFrom of net/http not at all (see docs/decisions/http.md).
func (g *generator) declareLength() {
	g.p.declared = true
	length := strconv.Itoa(g.wrote)
	switch n := g.IntN(10); {
	case n == 0:
		length = strconv.Itoa(g.wrote + 1 + g.IntN(1000))
	case n == 1 && !g.h2 && !g.froms:
		length = strconv.Itoa(g.IntN(g.wrote + 1))
	case n == 2 && !g.h2:
		length = "many"
	}
	s := step{
		"Set Content-Length " + length, func(w http.ResponseWriter, _ *http.Request, _ *trace) {
			w.Header().Set("Content-Length", length)
		},
	}
	g.p.steps = slices.Insert(g.p.steps, 0, s)
}

func (g *generator) breakIt() {
	g.p.breaks = true
	switch g.IntN(4) {
	case 0:
		g.add("panic", func(http.ResponseWriter, *http.Request, *trace) { panic("broken") })
	case 1:
		g.add("abort",
			func(http.ResponseWriter, *http.Request, *trace) { panic(http.ErrAbortHandler) })
	case 2:
		g.add("Goexit", func(http.ResponseWriter, *http.Request, *trace) { runtime.Goexit() })
	default:
		g.p.steps = slices.DeleteFunc(g.p.steps,
			func(s step) bool { return !strings.HasPrefix(s.name, "Set") })
		code := pick(g, 0, 99, 1000)
		g.add(fmt.Sprint("WriteHeader ", code),
			func(w http.ResponseWriter, _ *http.Request, _ *trace) { w.WriteHeader(code) })
	}
}
