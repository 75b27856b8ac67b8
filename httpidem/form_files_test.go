package httpidem_test

import (
	"bytes"
	"context"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// down is a store that cannot be used.
type down struct{ dedup.Store }

func (down) Claim(
	context.Context, dedup.Token, time.Duration, []dedup.Request, []dedup.Answer,
) error {
	return dedup.ErrUnavailable
}

// uploadFile sends a form with one file.
func uploadFile(t *testing.T, url string) *http.Response {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("file", "a.txt")
	require.NoError(t, err)
	_, err = file.Write(bytes.Repeat([]byte("x"), 1000))
	require.NoError(t, err)
	require.NoError(t, form.Close())
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, &body)
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", "a")
	r.Header.Set("Content-Type", form.FormDataContentType())
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp
}

// Files of a parsed form are on the disk until the request has ended, and no longer. net/http
// deletes only those of its own request, and the middleware passes on copies.
func TestFilesOfFormsAreDeleted(t *testing.T) {
	keep := func(*http.Request, httpidem.Outcome) httpidem.ResultPolicy { return httpidem.Keep }
	var dir string // of temporary files
	count := func() int {
		files, err := os.ReadDir(dir)
		if err != nil { // also called by handlers
			t.Error(err)
		}
		return len(files)
	}
	parse := func(r *http.Request) {
		if err := r.ParseMultipartForm(0); err != nil {
			t.Error(err)
		}
		assert.Len(t, r.MultipartForm.File["file"], 1)
		assert.Equal(t, 1, count(), "the file is on the disk")
	}
	type wrap func(*httpidem.Middleware, http.Handler) http.Handler
	handler := wrap((*httpidem.Middleware).Handler)
	lookup := wrap(func(m *httpidem.Middleware, next http.Handler) http.Handler {
		return m.Lookup(m.Handler(next))
	})
	between := wrap(func(m *httpidem.Middleware, next http.Handler) http.Handler {
		next = m.Handler(next)
		return m.Lookup(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			parse(r)
			next.ServeHTTP(w, r)
		}))
	})
	front := wrap(func(m *httpidem.Middleware, next http.Handler) http.Handler {
		next = m.Handler(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// the file is that of net/http's own request
			if err := r.ParseMultipartForm(0); err != nil {
				t.Error(err)
			}
			next.ServeHTTP(w, r)
			assert.Equal(t, 1, count(), "the owner deletes it")
		})
	})
	for name, c := range map[string]struct {
		tx     bool
		change func(*httpidem.Config)
		wrap   wrap
		panics bool
		status int
	}{
		"without httpidem": {wrap: func(_ *httpidem.Middleware, next http.Handler) http.Handler {
			return next
		}},
		"claimed": {wrap: handler},
		"panic":   {wrap: handler, panics: true},
		"transaction that runs twice": {tx: true, wrap: handler, change: func(c *httpidem.Config) {
			c.Store, c.ResultPolicy = twice{inMemory{c.Store}}, keep
		}},
		"unguarded": {wrap: handler, change: func(c *httpidem.Config) {
			c.Store, c.FailOpen = down{c.Store}, true
		}},
		"looked up first":          {wrap: lookup},
		"parsed behind Lookup":     {wrap: between},
		"parsed in front, refused": {wrap: front, status: http.StatusInternalServerError},
		"parsed by Fingerprint": {wrap: lookup, change: func(c *httpidem.Config) {
			c.Fingerprint = func(r *http.Request, _ *httpidem.Payload) error {
				parse(r)
				return nil
			}
		}},
		"refused by Fingerprint": {
			wrap: handler, status: http.StatusTeapot, change: func(c *httpidem.Config) {
				c.Fingerprint = func(r *http.Request, _ *httpidem.Payload) error {
					parse(r)
					return httpidem.Refuse(http.StatusTeapot, "no")
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir = t.TempDir()
			t.Setenv("TMPDIR", dir)
			s := newService(t)
			s.work = func(_ http.ResponseWriter, r *http.Request) {
				parse(r)
				if c.panics {
					panic(http.ErrAbortHandler)
				}
			}
			cfg := s.config(memstore.New())
			if c.change != nil {
				c.change(&cfg)
			}
			open := httpidem.New
			if c.tx {
				open = httpidem.NewTx[pgx.Tx]
			}
			m, err := open(cfg)
			require.NoError(t, err)
			t.Cleanup(m.Close)
			h := c.wrap(m, s)
			server := httptest.NewServer(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					defer func() {
						if c.panics {
							assert.NotNil(t, recover())
						}
					}()
					h.ServeHTTP(w, r)
				}))
			resp := uploadFile(t, server.URL)
			server.Close()
			if c.status != 0 {
				require.Equal(t, c.status, resp.StatusCode)
			}
			require.Zero(t, count(), "files are left")
		})
	}
}
