package schemaregistry_test

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec/schemaregistry"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup/memstore"
)

// servers are the registries of the tests: the fake of franz-go over HTTP, and the program at
// SCHEMA_REGISTRY_URL, if set, such as Apicurio's http://localhost:8080/apis/ccompat/v7.
func servers(t *testing.T, f func(t *testing.T, address string)) {
	t.Run("fake", func(t *testing.T) { f(t, fake(t).URL()) })
	if address := os.Getenv("SCHEMA_REGISTRY_URL"); address != "" {
		t.Run("program", func(t *testing.T) { f(t, address) })
	}
}

func fake(t testing.TB, opts ...srfake.Option) *srfake.Registry {
	r := srfake.New(opts...)
	t.Cleanup(r.Close)
	return r
}

// subject is a subject that no other test uses, in no other run.
func subject(t *testing.T) string {
	return strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()) + time.Now().Format("-150405.000000000")
}

func open(t *testing.T, address string, change ...func(*schemaregistry.Config)) *schemaregistry.Registry {
	cfg := schemaregistry.Config{URLs: []string{address}, Timeout: 2 * time.Second}
	for _, c := range change {
		c(&cfg)
	}
	r, err := schemaregistry.New(cfg)
	require.NoError(t, err)
	return r
}

// register registers a schema by another client, and returns its ID.
func register(t *testing.T, address, subject string, s sr.Schema) int {
	c, err := sr.NewClient(sr.URLs(address))
	require.NoError(t, err)
	id, err := c.RegisterSchema(t.Context(), subject, s, -1, -1)
	require.NoError(t, err)
	return id
}

// counting is a proxy that counts requests and can refuse them.
type counting struct {
	*httptest.Server
	requests atomic.Int32
	refuse   atomic.Pointer[http.HandlerFunc]
}

func count(t *testing.T, address string) *counting {
	to, err := url.Parse(address)
	require.NoError(t, err)
	c := &counting{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c.requests.Add(1)
		if refuse := c.refuse.Load(); refuse != nil {
			(*refuse)(w, req)
			return
		}
		there := to.JoinPath(req.URL.Path)
		there.RawQuery = req.URL.RawQuery
		out, err := http.NewRequestWithContext(req.Context(), req.Method, there.String(), req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		out.Header = req.Header
		resp, err := http.DefaultClient.Do(out)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		maps.Copy(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *counting) refuseAll(h http.HandlerFunc) {
	if h == nil {
		c.refuse.Store(nil)
		return
	}
	c.refuse.Store(&h)
}

// consumer is a processor with its dead letters and its log.
type consumer struct {
	*idem.Processor
	mu   sync.Mutex
	dead []*idem.Message
	log  strings.Builder
}

func (c *consumer) Produce(_ context.Context, msgs ...*idem.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = append(c.dead, msgs...)
	return nil
}

func (c *consumer) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(b)
}

func (c *consumer) logged() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.String()
}

// deadLetter is the class and the error of the only dead letter.
func (c *consumer) deadLetter(t *testing.T) (class, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Len(t, c.dead, 1)
	for _, h := range c.dead[0].Headers {
		switch h.Key {
		case deadletter.HeaderErrorClass:
			class = string(h.Value)
		case deadletter.HeaderError:
			text = string(h.Value)
		}
	}
	return class, text
}

func consume(t *testing.T, r *idem.Router) *consumer {
	c := &consumer{}
	p, err := idem.NewProcessor(r, idem.Config{
		Store: memstore.New(), Scope: "g", Producer: c, BusyWait: idem.Forever, Logger: slog.New(slog.NewTextHandler(c, nil)),
	})
	require.NoError(t, err)
	c.Processor = p
	t.Cleanup(func() { _ = p.Close() })
	return c
}

// record is a message with its identity in headers.
func record(id, typ string, offset int64, value []byte) *idem.Message {
	return &idem.Message{
		Topic: "payments", Offset: offset, Key: []byte("k"), Value: value, Time: time.Now(),
		Headers: []idem.Header{{Key: "event-id", Value: []byte(id)}, {Key: "event-type", Value: []byte(typ)}},
	}
}
