package ops

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var linkPattern = regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)

// The page works under any prefix, stripped or not, and at the root: no link of it leaves its
// folder.
func TestAnyPrefix(t *testing.T) {
	for prefix, mount := range map[string]struct {
		prefix string
		strip  func(http.Handler) http.Handler
	}{
		"/":            {},
		"/admin/idem/": {prefix: "/admin/idem/"},
		"/stripped/":   {strip: func(h http.Handler) http.Handler { return http.StripPrefix("/stripped", h) }},
		"/half/way/":   {prefix: "/way/", strip: func(h http.Handler) http.Handler { return http.StripPrefix("/half", h) }},
	} {
		cfg := quietConfig()
		cfg.Prefix = mount.prefix
		src, _ := full(time.Now())
		h, err := newHandler(cfg.withDefaults(), src)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) }) // that of the test has ended by then
		handler := http.Handler(h)
		if mount.strip != nil {
			handler = mount.strip(h)
		}
		mux := http.NewServeMux()
		mux.Handle(prefix, handler)
		server := httptest.NewServer(mux)
		s := &site{t: t, h: h, server: server, at: server.URL + prefix, header: http.Header{}}
		for _, name := range allPages {
			a := s.get(name)
			require.Equal(t, http.StatusOK, a.status, "%s%s: %s", prefix, name, a.body)
			links := linkPattern.FindAllStringSubmatch(a.body, -1)
			require.NotEmpty(t, links)
			for _, l := range links {
				require.True(t, strings.HasPrefix(l[1], "./") || strings.HasPrefix(l[1], "#"), "%s: link %q", name, l[1])
				require.NotContains(t, l[1][1:], "..", "%s: link %q", name, l[1])
			}
		}
		for name := range assets() {
			require.Equal(t, http.StatusOK, s.get(name).status)
		}
		id := s.planFor("0/0")
		require.Contains(t, s.get("plan?id="+id).body, "Replay")
		server.Close()
	}
}

// Every link of every page leads somewhere.
func TestLinksLeadSomewhere(t *testing.T) {
	s, _ := fullSite(t)
	seen := map[string]bool{}
	for _, name := range append([]string{"plan?id=" + s.planFor("0/0", "1/1")}, allPages...) {
		for _, l := range linkPattern.FindAllStringSubmatch(s.get(name).body, -1) {
			link := strings.TrimPrefix(strings.ReplaceAll(l[1], "&amp;", "&"), "./")
			link, _, _ = strings.Cut(link, "#")
			if seen[link] || link == "plan" || link == "replay" || link == "" {
				continue
			}
			seen[link] = true
			require.Equal(t, http.StatusOK, s.get(link).status, "%s -> %q", name, link)
		}
	}
	require.Greater(t, len(seen), 15)
}

func TestWithoutSlash(t *testing.T) {
	h, err := NewHandler(Config{Loopback: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) }) // that of the test has ended by then
	server := httptest.NewServer(http.StripPrefix("/admin/idem", h))
	defer server.Close()
	res, err := server.Client().Get(server.URL + "/admin/idem")
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, "/admin/idem/", res.Request.URL.Path)
	require.Equal(t, http.StatusOK, res.StatusCode)
}

func TestMethods(t *testing.T) {
	s, letters := fullSite(t)
	for _, name := range []string{"", "event", "activity", "partitions", "claims", "deferred", "dead-letters", "dead-letter", "outbox", "doctor"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, "PROPFIND"} {
			a := s.do(method, name, nil)
			require.Equal(t, http.StatusMethodNotAllowed, a.status, "%s %s", method, name)
			require.Equal(t, "GET, HEAD", a.header.Get("Allow"))
		}
		a := s.do(http.MethodHead, name+"?id=x&topic=orders.billing.dlq&partition=0&offset=0", nil)
		require.Equal(t, http.StatusOK, a.status, name)
		require.Empty(t, a.body)
	}
	a := s.get("replay?id=" + s.planFor("0/0"))
	require.Equal(t, http.StatusMethodNotAllowed, a.status)
	require.Equal(t, http.MethodPost, a.header.Get("Allow"))
	require.Empty(t, letters.replayed, "a GET has replayed something")
	require.Equal(t, http.StatusNotFound, s.get("nothing-here").status)
	require.Equal(t, http.StatusNotFound, s.get("plan?id=guess").status)
	require.Equal(t, http.StatusBadRequest, s.get("dead-letter?topic=x&partition=-1&offset=0").status)
	require.Equal(t, http.StatusNotFound, s.get("dead-letter?topic=orders&partition=0&offset=0").status, "the page reads dead-letter topics only")
}

// Forms of other sites, and of other ports of this one, are refused (G-10).
func TestCrossOrigin_G10(t *testing.T) {
	s, letters := fullSite(t)
	id := s.planFor("0/0")
	own, err := url.Parse(s.at)
	require.NoError(t, err)
	for name, header := range map[string]http.Header{
		"another site":           {"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://evil.example"}},
		"another port":           {"Sec-Fetch-Site": {"same-site"}, "Origin": {"http://127.0.0.1:1"}},
		"another port, old":      {"Origin": {"http://127.0.0.1:1"}},
		"another site, old":      {"Origin": {"https://evil.example"}},
		"no origin that is told": {"Origin": {"null"}},
	} {
		s.header = header
		for _, form := range []struct {
			path   string
			values url.Values
		}{{"replay", url.Values{"id": {id}}}, {"plan", url.Values{"topic": {fakeTopic}, "at": {"0/0"}}}} {
			require.Equal(t, http.StatusForbidden, s.post(form.path, form.values).status, "%s: %s", name, form.path)
		}
		s.header.Set("Sec-Fetch-Mode", "navigate")
		s.header.Set("Sec-Fetch-Dest", "document")
		require.Equal(t, http.StatusOK, s.get("").status, "%s: links from elsewhere work", name)
	}
	require.Empty(t, letters.replayed)
	for _, header := range []http.Header{{"Sec-Fetch-Site": {"same-origin"}}, {"Origin": {"http://" + own.Host}}} {
		s.header = header
		require.Equal(t, http.StatusOK, s.post("plan", url.Values{"topic": {fakeTopic}, "at": {"0/0"}}).status)
	}
}

func TestTrustedOrigin(t *testing.T) {
	s, _ := fullSite(t, func(c *Config) { c.TrustedOrigins = []string{"https://admin.example"} })
	s.header = http.Header{"Origin": {"https://admin.example"}}
	require.Equal(t, http.StatusOK, s.post("plan", url.Values{"topic": {fakeTopic}, "at": {"0/0"}}).status)
}

func TestAssets(t *testing.T) {
	s, _ := fullSite(t)
	require.Len(t, assets(), 3)
	for name, a := range assets() {
		got := s.get(name)
		require.Equal(t, a.mime, got.header.Get("Content-Type"))
		require.Equal(t, string(a.content), got.body)
		require.Contains(t, got.header.Get("Cache-Control"), "immutable")
	}
}

func TestLookUp(t *testing.T) {
	s, _ := fullSite(t)
	for id, want := range map[string][]string{
		"order-4711": {"Yes, it was handled", "Timeline", "Written to Kafka", "orders, partition 3, offset 48113", "Handled", "in one transaction", "May be forgotten"},
		"order-4700": {"No. It was given up after 8 failures.", "card declined", "Dead letter: permanent", "Look at its dead letter, and plan a replay", "idem event skip order-4700"},
		"order-99":   {"Not known.", "went silent", "idempotency key"},
		"nobody":     {"Not known here.", "was not claimed yet", "What to do next"},
	} {
		a := s.get("event?id=" + id)
		for _, w := range want {
			require.Contains(t, a.body, w, id)
		}
	}
	require.Equal(t, s.at, s.get("event?id=++").at, "an empty look-up is the start page")
}

// The steps of a timeline are in their order, future steps last.
func TestTimelineOrder(t *testing.T) {
	s, _ := fullSite(t)
	body := s.get("event?id=order-4711").body
	last := -1
	for _, w := range []string{"Written to Kafka", "First seen by the store", "The handler failed", ">Handled<", "May be forgotten"} {
		i := strings.Index(body, w)
		require.Greater(t, i, last, w)
		last = i
	}
}

func TestFilters(t *testing.T) {
	s, _ := fullSite(t)
	body := s.get("dead-letters?class=failed").body
	require.Contains(t, body, "order-4701")
	require.NotContains(t, body, "order-4700")
	body = s.get("dead-letters?id=order-4702").body
	require.Contains(t, body, "order-4702")
	require.NotContains(t, body, "order-4701")
	body = s.get("dead-letters?since=20m").body
	require.Contains(t, body, "order-4711")
	require.NotContains(t, body, "order-4700")
	for query, label := range map[string]string{"since": "Failed since", "until": "Failed before"} {
		require.Contains(t, s.get("dead-letters?"+query+"=nonsense").body, "&#34;"+label+"&#34; is no time.")
	}
	require.Contains(t, s.get("dead-letters?topic=orders").body, "no dead-letter topic of this group")
	require.Contains(t, s.get("dead-letters?type=nothing").body, "No dead letter matches")
}
