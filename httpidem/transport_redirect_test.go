package httpidem_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/httpidem"
)

// hop is a server that records the keys it gets, and redirects some paths.
type hop struct {
	*httptest.Server
	mu   sync.Mutex
	to   map[string]string // by path
	code int
	keys map[string][]string // the first line of each request
	all  map[string][]string // the lines of the last request
}

func newHop(t *testing.T, code int) *hop {
	h := &hop{code: code, to: map[string]string{}, keys: map[string][]string{}, all: map[string][]string{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.keys[r.URL.Path] = append(h.keys[r.URL.Path], r.Header.Get("Idempotency-Key"))
		h.all[r.URL.Path] = r.Header.Values("Idempotency-Key")
		if to := h.to[r.URL.Path]; to != "" {
			w.Header().Set("Location", to)
			w.WriteHeader(h.code)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hop) seen(path string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.keys[path]
}

// A key belongs to the host of the caller's request. Another host, after a redirect, gets one
// derived from it, the same each time.
func TestTransportRedirectToAnotherHost(t *testing.T) {
	for name, c := range map[string]struct {
		code   int
		header bool // the caller has set the header
		both   bool // the caller has set a key in the context, and a header to replace
	}{
		"307, of the context":   {code: http.StatusTemporaryRedirect},
		"308, of the header":    {code: http.StatusPermanentRedirect, header: true},
		"303, of the header":    {code: http.StatusSeeOther, header: true},
		"302, of the context":   {code: http.StatusFound},
		"307, of the header":    {code: http.StatusTemporaryRedirect, header: true},
		"302, of the header":    {code: http.StatusFound, header: true},
		"308, of both":          {code: http.StatusPermanentRedirect, both: true},
		"307, of both":          {code: http.StatusTemporaryRedirect, both: true},
		"308, of the transport": {code: http.StatusPermanentRedirect},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := newHop(t, c.code), newHop(t, c.code)
			here.to["/a"] = there.URL + "/b" // another host
			here.to["/same"] = here.URL + "/end"
			there.to["/b"] = here.URL + "/back" // and back
			keeps := c.code == http.StatusTemporaryRedirect ||
				c.code == http.StatusPermanentRedirect
			client := &http.Client{Transport: &httpidem.Transport{}}
			for range 2 {
				for _, path := range []string{"/a", "/same"} {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
						here.URL+path, bytes.NewReader([]byte("7")))
					require.NoError(t, err)
					switch {
					case c.header:
						r.Header.Set("Idempotency-Key", "order-1")
					case c.both:
						r.Header.Set("Idempotency-Key", "theirs")
						r = r.WithContext(httpidem.WithKey(r.Context(), "order-1"))
					case name != "308, of the transport":
						r = r.WithContext(httpidem.WithKey(r.Context(), "order-1"))
					}
					resp, err := client.Do(r)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					require.Equal(t, http.StatusOK, resp.StatusCode)
				}
			}
			other := there.seen("/b")
			require.Len(t, other, 2)
			for _, key := range other {
				require.NotContains(t, append(here.seen("/a"), "order-1", "theirs"), key)
				require.Equal(t, keeps, key != "", "a request that is no POST any longer has none")
			}
			if name == "308, of the transport" { // two requests of the caller: two keys
				require.NotEqual(t, here.seen("/a")[0], here.seen("/a")[1])
				require.Equal(t, here.seen("/a"), here.seen("/back"))
				require.Equal(t, here.seen("/same"), here.seen("/end"))
				return
			}
			require.Equal(t, other[0], other[1], "it knows a repeat when it sees one")
			want := ""
			if keeps || c.header {
				want = "order-1"
			}
			require.Equal(t, []string{"order-1", "order-1"}, here.seen("/a"))
			require.Equal(t, []string{want, want}, here.seen("/end"), "the same host")
			require.Equal(t, []string{want, want}, here.seen("/back"),
				"the host that the key is for")
		})
	}
}

// lines returns the header of the last request to a path.
func (h *hop) lines(path string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[path]
}

// Another host gets as many lines as the caller has set, in any spelling, and none of the caller's
// keys. Two lines are no key, so it refuses them as the first host would.
func TestTransportRedirectWithHeaderLines(t *testing.T) {
	for name, c := range map[string]struct {
		header http.Header
		want   int // lines after a redirect that keeps the method
	}{
		"one, in lower case": {http.Header{"idempotency-key": {"a"}}, 1},
		"two":                {http.Header{"Idempotency-Key": {"a", "b"}}, 2},
		"two spellings":      {http.Header{"Idempotency-Key": {"a"}, "idempotency-key": {"b"}}, 2},
	} {
		for code, want := range map[int]int{
			http.StatusTemporaryRedirect: c.want, http.StatusSeeOther: 0,
		} {
			t.Run(fmt.Sprint(name, ", ", code), func(t *testing.T) {
				here, there := newHop(t, code), newHop(t, code)
				here.to["/a"] = there.URL + "/b"
				inner := &httpidem.Transport{}
				for _, transport := range []http.RoundTripper{
					inner, &httpidem.Transport{Base: inner},
				} {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
						here.URL+"/a", http.NoBody)
					require.NoError(t, err)
					r.Header = c.header.Clone()
					resp, err := (&http.Client{Transport: transport}).Do(r)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					require.Len(t, here.lines("/a"), c.want)
					got := there.lines("/b")
					require.Len(t, got, want)
					require.Len(t, slices.Compact(got), want, "different keys stay different")
					require.NotContains(t, got, "a")
					require.NotContains(t, got, "b")
				}
			})
		}
	}
}
