package ops

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/consumer"
)

// allPages are addresses of all pages, with something on each.
var allPages = []string{
	"", "event?id=order-4711", "event?id=order-4700", "event?id=order-99", "event?id=nobody", "activity", "activity?range=1h", "activity?range=6h", "partitions",
	"claims", "deferred", "dead-letters", "dead-letters?class=failed&type=order.created&since=90m", "dead-letters?since=yesterday", "dead-letters?id=none",
	"dead-letter?topic=orders.billing.dlq&partition=0&offset=0", "dead-letter?topic=orders.billing.dlq&partition=0&offset=0&as=hex", "outbox", "doctor",
}

// site is a page that is served, and a browser without JavaScript.
type site struct {
	t      *testing.T
	h      *Handler
	server *httptest.Server
	at     string // of the start page
	header http.Header
}

func quietConfig() Config {
	return Config{
		Loopback: true, AllowReplay: true, Timeout: 2 * time.Second, Logger: slog.New(slog.DiscardHandler), Consumer: consumer.Config{Group: "billing"},
	}
}

// serve mounts a page under a prefix.
func serve(t *testing.T, cfg Config, src sources) *site {
	t.Helper()
	cfg.Prefix = "/admin/idem/"
	h, err := newHandler(cfg.withDefaults(), src)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/admin/idem/", h)
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, h.Close(ctx))
	})
	return &site{t: t, h: h, server: server, at: server.URL + "/admin/idem/", header: http.Header{}}
}

func fullSite(t *testing.T, change ...func(*Config)) (*site, *fakeDeadLetters) {
	t.Helper()
	cfg := quietConfig()
	for _, c := range change {
		c(&cfg)
	}
	src, letters := full(time.Now())
	return serve(t, cfg, src), letters
}

type answerOf struct {
	status int
	header http.Header
	body   string
	at     string // after redirects
}

func (s *site) do(method, path string, form url.Values) answerOf {
	s.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.at+path, body)
	require.NoError(s.t, err)
	req.Header = s.header.Clone()
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := s.server.Client().Do(req)
	require.NoError(s.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(s.t, err)
	return answerOf{res.StatusCode, res.Header, string(text), res.Request.URL.String()}
}

func (s *site) get(path string) answerOf {
	s.t.Helper()
	return s.do(http.MethodGet, path, nil)
}

func (s *site) post(path string, form url.Values) answerOf {
	s.t.Helper()
	if form == nil {
		form = url.Values{}
	}
	return s.do(http.MethodPost, path, form)
}

// planFor makes a plan for dead letters and returns its id.
func (s *site) planFor(at ...string) string {
	s.t.Helper()
	a := s.post("plan", url.Values{"topic": {fakeTopic}, "at": at})
	require.Equal(s.t, http.StatusOK, a.status, a.body)
	u, err := url.Parse(a.at)
	require.NoError(s.t, err)
	require.NotEmpty(s.t, u.Query().Get("id"))
	return u.Query().Get("id")
}
