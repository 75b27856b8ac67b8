package schemaregistry_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec/schemaregistry"
	"github.com/idem-go/idem/internal/netproxy"
)

// cable is a TCP proxy to a registry that can be cut.
type cable struct {
	address string
	cut     atomic.Bool
}

func connect(t *testing.T, address string) *cable {
	u, err := url.Parse(address)
	require.NoError(t, err)
	c := &cable{}
	p := netproxy.Start(t, u.Host, func() netproxy.Link {
		pipe := func(dst io.Writer, src io.Reader) {
			buf := make([]byte, 4096)
			for !c.cut.Load() {
				n, err := src.Read(buf)
				if err != nil || c.cut.Load() {
					return
				}
				if _, err := dst.Write(buf[:n]); err != nil {
					return
				}
			}
		}
		return netproxy.Link{Up: pipe, Down: pipe}
	})
	u.Host = p.Addr()
	c.address = u.String()
	return c
}

// While the registry cannot be reached, events of known schemas go on, others wait, and duplicates
// pass. The outage is logged once, and no event is lost.
func TestOutage(t *testing.T) {
	servers(t, func(t *testing.T, address string) {
		line := connect(t, address)
		known, later := register(t, address, subject(t)+"-a", forms["avro"].schema), register(t, address, subject(t)+"-b", forms["json"].schema)
		value := func(id int, form string) []byte {
			v, err := sr.Encode(payment{"p1", 7}, new(sr.ConfluentHeader), id, nil, forms[form].other)
			require.NoError(t, err)
			return v
		}
		registry := open(t, line.address)
		var mu sync.Mutex
		var got []string
		r := idem.NewRouter(idem.DecodeWith(registry))
		idem.On(r, "paid", func(_ context.Context, e idem.Event[payment]) error {
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, 1, e.Attempt)
			got = append(got, e.ID)
			return nil
		})
		ids := func() []string { mu.Lock(); defer mu.Unlock(); return append([]string(nil), got...) }
		p := consume(t, r)
		require.NoError(t, p.Handle(t.Context(), record("e1", "paid", 1, value(known, "avro"))))
		line.cut.Store(true)
		require.NoError(t, p.Handle(t.Context(), record("e2", "paid", 2, value(known, "avro"))))
		done := make(chan error, 1)
		go func() {
			_, err := p.HandleBatch(t.Context(), []*idem.Message{
				record("e1", "paid", 3, value(known, "avro")), record("e3", "paid", 4, value(later, "json")), record("e4", "paid", 5, value(known, "avro")),
			})
			done <- err
		}()
		require.Eventually(t, func() bool { return len(p.Status().Down) == 1 }, 10*time.Second, 10*time.Millisecond)
		require.Contains(t, p.Status().Down[0], "schema registry 127.0.0.1:")
		time.Sleep(2 * time.Second) // several tries
		require.Equal(t, []string{"e1", "e2"}, ids())
		line.cut.Store(false)
		require.NoError(t, <-done)
		require.Equal(t, []string{"e1", "e2", "e3", "e4"}, ids())
		require.Empty(t, p.dead)
		require.Empty(t, p.Status().Down)
		require.Equal(t, 1, strings.Count(p.logged(), "unavailable, pausing"), p.logged())
		require.Equal(t, 1, strings.Count(p.logged(), "is back"), p.logged())
	})
}

// An ID that the registry does not know: one dead letter that names it; further events do not ask
// again.
func TestUnknownID(t *testing.T) {
	servers(t, func(t *testing.T, address string) {
		c := count(t, address)
		const unknown = 1<<31 - 7
		var h sr.ConfluentHeader
		value, _ := h.AppendEncode(nil, unknown, nil)
		r := idem.NewRouter(idem.DecodeWith(open(t, c.URL)))
		idem.On(r, "paid", func(context.Context, idem.Event[payment]) error { t.Error("it ran"); return nil })
		p := consume(t, r)
		require.NoError(t, p.Handle(t.Context(), record("e1", "paid", 1, append(value, "rest"...))))
		class, text := p.deadLetter(t)
		require.Equal(t, string(idem.ClassUndecodable), class)
		require.Contains(t, text, fmt.Sprintf("schema ID %d is unknown to schema registry ", unknown))
		require.EqualValues(t, 3, c.requests.Load())
		require.NoError(t, p.Handle(t.Context(), record("e2", "paid", 2, value)))
		require.EqualValues(t, 3, c.requests.Load())
		require.Len(t, p.dead, 2)
	})
}

// Any other answer does not decide about the event.
func TestUnavailable(t *testing.T) {
	server := fake(t)
	id := register(t, server.URL(), "s", forms["avro"].schema)
	value, err := sr.Encode(payment{"p1", 7}, new(sr.ConfluentHeader), id, nil, forms["avro"].other)
	require.NoError(t, err)
	for name, refuse := range map[string]http.HandlerFunc{
		"401": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"403 with JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"error_code":40301}`)
		},
		"404 of a proxy": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, "<html>")
		},
		"404 of a path": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error_code":404}`)
		},
		"429": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		"500": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"error_code":50001}`)
		},
		"200 of a page": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"200 of {}":     func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) },
		"200 of null":   func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `null`) },
		"200 of a health page": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"status":"UP"}`)
		},
		"endless": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.CopyN(w, zeros{}, 20<<20) },
		"hangs":   func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() },
		"cut":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			c := count(t, server.URL())
			c.refuseAll(refuse)
			limit := 30 * time.Second
			answers := func(ask func() error) { require.NoError(t, ask()) }
			if name == "hangs" { // an answer to a later request may take longer than this limit
				limit = 300 * time.Millisecond
				answers = func(ask func() error) {
					require.Eventually(t, func() bool { return ask() == nil }, 30*time.Second, time.Millisecond)
				}
			}
			registry := open(t, c.URL, func(c *schemaregistry.Config) { c.Timeout = limit })
			decode := func() error {
				return registry.Decode(t.Context(), record("e1", "paid", 1, value), new(payment))
			}
			err := decode()
			require.Equal(t, "unavailable", idem.ErrorMark(err), "%v", err)
			require.ErrorContains(t, err, fmt.Sprintf("schema ID %d", id))
			e, err := registry.Encoder(schemaregistry.EncoderConfig{Subject: "s"})
			require.NoError(t, err)
			encode := func() error {
				_, err := e.Encode(t.Context(), payment{"p1", 7})
				return err
			}
			err = encode()
			require.Equal(t, "unavailable", idem.ErrorMark(err), "%v", err)
			ping := func() error { return registry.Ping(t.Context()) }
			require.Error(t, ping())
			c.refuseAll(nil)
			answers(ping)
			answers(decode)
			answers(encode)
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// An answer without a schema ID is no answer to an encoder that has its own schema.
func TestUnavailable_OwnSchema(t *testing.T) {
	for _, register := range []bool{false, true} {
		server := fake(t)
		_, _, err := server.RegisterSchema("s", forms["avro"].schema)
		require.NoError(t, err)
		c := count(t, server.URL())
		e, err := open(t, c.URL).Encoder(schemaregistry.EncoderConfig{Subject: "s", Schema: avroPayment, Register: register})
		require.NoError(t, err)
		c.refuseAll(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) })
		_, err = e.Encode(t.Context(), payment{"p1", 7})
		require.Equal(t, "unavailable", idem.ErrorMark(err), "%v", err)
		c.refuseAll(nil)
		_, err = e.Encode(t.Context(), payment{"p1", 7})
		require.NoError(t, err)
	}
}

// A value with an ID that no registry gives is not asked for.
func TestDecode_NoSuchID(t *testing.T) {
	c := count(t, fake(t).URL())
	registry := open(t, c.URL)
	for _, value := range []string{"\x00\xff\xff\xff\xff", "\x00\x80\x00\x00\x00rest"} {
		err := registry.Decode(t.Context(), record("e1", "paid", 1, []byte(value)), new(payment))
		require.ErrorContains(t, err, "schema ID")
		require.Empty(t, idem.ErrorMark(err))
	}
	require.Zero(t, c.requests.Load())
}

// Without a live context, only the cache counts.
func TestDecode_EndedContext(t *testing.T) {
	c := count(t, fake(t).URL())
	registry := open(t, c.URL)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := registry.Decode(ctx, record("e1", "paid", 1, []byte("\x00\x00\x00\x00\x07rest")), new(payment))
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, c.requests.Load())
}

// Callers with the same question share one request. The end of the first caller's context is no
// answer for the others.
func TestDecode_SharesQuestions(t *testing.T) {
	server := fake(t)
	id := register(t, server.URL(), "s", forms["avro"].schema)
	value, err := sr.Encode(payment{"p1", 7}, new(sr.ConfluentHeader), id, nil, forms["avro"].other)
	require.NoError(t, err)
	c := count(t, server.URL())
	entered := make(chan struct{}, 100)
	c.refuseAll(func(w http.ResponseWriter, req *http.Request) {
		entered <- struct{}{}
		<-req.Context().Done()
	})
	registry := open(t, c.URL)
	first, leave := context.WithCancel(t.Context())
	firstDone := make(chan error, 1)
	go func() { firstDone <- registry.Decode(first, record("e1", "paid", 1, value), new(payment)) }()
	<-entered
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			var p payment
			err := registry.Decode(t.Context(), record("e1", "paid", 1, value), &p)
			assert.NoError(t, err) //nolint:testifylint // not on the goroutine of the test
			assert.Equal(t, payment{"p1", 7}, p)
		})
	}
	time.Sleep(100 * time.Millisecond)
	c.refuseAll(nil)
	leave()
	require.Error(t, <-firstDone)
	all.Wait()
	require.EqualValues(t, 2, c.requests.Load())
}

// Basic and bearer authentication, and a private authority.
func TestAuthentication(t *testing.T) {
	server := fake(t)
	id := register(t, server.URL(), "s", forms["avro"].schema)
	value, err := sr.Encode(payment{"p1", 7}, new(sr.ConfluentHeader), id, nil, forms["avro"].other)
	require.NoError(t, err)
	var want atomic.Value
	https := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != want.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		server.Handler().ServeHTTP(w, req)
	}))
	defer https.Close()
	pool := x509.NewCertPool()
	pool.AddCert(https.Certificate())
	for name, c := range map[string]struct {
		header string
		change func(*schemaregistry.Config)
	}{
		"basic":  {"Basic dXNlcjpwYXNz", func(c *schemaregistry.Config) { c.Username, c.Password = "user", "pass" }},
		"bearer": {"Bearer t0", func(c *schemaregistry.Config) { c.BearerToken = "t0" }},
		"changing": {"Bearer t1", func(c *schemaregistry.Config) {
			c.Authorize = func(req *http.Request) error { req.Header.Set("Authorization", "Bearer t1"); return nil }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			want.Store(c.header)
			withTLS := func(c *schemaregistry.Config) { c.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12} }
			require.NoError(t, open(t, https.URL, withTLS, c.change).Decode(t.Context(), record("e1", "paid", 1, value), new(payment)))
			for _, change := range [][]func(*schemaregistry.Config){{withTLS}, {c.change}, {withTLS, func(c *schemaregistry.Config) {
				c.Authorize = func(*http.Request) error { return errors.New("no token") }
			}}} {
				err := open(t, https.URL, change...).Decode(t.Context(), record("e1", "paid", 1, value), new(payment))
				require.Equal(t, "unavailable", idem.ErrorMark(err), "%v", err)
			}
		})
	}
}

// The latest schema is asked for again after a while, and the former one serves while the registry
// is down.
func TestEncoder_Latest(t *testing.T) {
	server := fake(t)
	c := count(t, server.URL())
	first := register(t, server.URL(), "s", forms["avro"].schema)
	encoder := func(latestFor time.Duration) (encode func() (id int)) {
		registry := open(t, c.URL, func(c *schemaregistry.Config) { c.LatestFor = latestFor })
		e, err := registry.Encoder(schemaregistry.EncoderConfig{Subject: "s"})
		require.NoError(t, err)
		return func() (id int) {
			value, err := e.Encode(t.Context(), payment{"p1", 7})
			require.NoError(t, err)
			id, _, err = new(sr.ConfluentHeader).DecodeID(value)
			require.NoError(t, err)
			return id
		}
	}
	rarely, often := encoder(time.Hour), encoder(50*time.Millisecond)
	require.Equal(t, first, rarely())
	require.Equal(t, first, rarely())
	require.EqualValues(t, 1, c.requests.Load())
	require.Equal(t, first, often())
	second := register(t, server.URL(), "s", sr.Schema{Schema: strings.Replace(avroPayment, `"fields":[`, `"doc":"second","fields":[`, 1)})
	require.NotEqual(t, first, second)
	require.Equal(t, first, rarely())
	require.Eventually(t, func() bool { return often() == second }, 5*time.Second, 10*time.Millisecond)
	c.refuseAll(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	time.Sleep(100 * time.Millisecond)
	require.Equal(t, second, often())
}
