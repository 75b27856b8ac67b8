package frameworks

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gorilla/mux"
	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// middleware has the shape that all routers share.
type middleware func(http.Handler) http.Handler

// transfers counts the runs of the handler. All frameworks mount it as POST
// /accounts/{id}/transfers. The answer is 201 with the account and the number of the run, or the
// framework's answer to an error of its handler.
type transfers struct{ runs atomic.Int64 }

func (s *transfers) run(account string, r *http.Request) string {
	return fmt.Sprintf("%s %d %s", account, s.runs.Add(1), httpidem.KeyFrom(r.Context()))
}

const refused = "closed" // the account for which the handler fails

// mounts are the ways that docs/http.md shows.
func mounts() map[string]func(*transfers, middleware) http.Handler {
	return map[string]func(*transfers, middleware) http.Handler{
		"chi, With": func(s *transfers, m middleware) http.Handler {
			r := chi.NewRouter()
			r.With(m).Post("/accounts/{id}/transfers", s.chi)
			return r
		},
		"chi, Group in a mounted router": func(s *transfers, m middleware) http.Handler {
			accounts, r := chi.NewRouter(), chi.NewRouter()
			accounts.Group(func(r chi.Router) {
				r.Use(m)
				r.Post("/{id}/transfers", s.chi)
			})
			r.Mount("/accounts", accounts)
			return r
		},
		"echo": func(s *transfers, m middleware) http.Handler {
			e := echo.New()
			e.POST("/accounts/:id/transfers", s.echo, echoMiddleware(m))
			return e
		},
		"echo, group": func(s *transfers, m middleware) http.Handler {
			e := echo.New()
			e.Group("/accounts", echoMiddleware(m)).POST("/:id/transfers", s.echo)
			return e
		},
		"gin, around the engine": func(s *transfers, m middleware) http.Handler {
			g := gin.New()
			g.POST("/accounts/:id/transfers", s.gin)
			return m(g)
		},
		"gin, in the handler": func(s *transfers, m middleware) http.Handler {
			g := gin.New()
			g.POST("/accounts/:id/transfers", func(c *gin.Context) {
				m(s.withID(c.Param("id"))).ServeHTTP(c.Writer, c.Request)
			})
			return g
		},
		"gorilla/mux": func(s *transfers, m middleware) http.Handler {
			r := mux.NewRouter()
			accounts := r.PathPrefix("/accounts").Subrouter()
			accounts.Use(mux.MiddlewareFunc(m))
			accounts.HandleFunc("/{id}/transfers", s.gorilla).Methods(http.MethodPost)
			return r
		},
		"net/http": func(s *transfers, m middleware) http.Handler {
			r := http.NewServeMux()
			r.Handle("POST /accounts/{id}/transfers", m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s.withID(r.PathValue("id")).ServeHTTP(w, r)
			})))
			return r
		},
	}
}

// echoMiddleware mounts m. Errors of handlers are answered inside of it. echo would answer them
// outside, after an empty answer has been kept.
func echoMiddleware(m middleware) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return echo.WrapMiddleware(m)(func(c *echo.Context) error {
			if err := next(c); err != nil {
				c.Echo().HTTPErrorHandler(c, err)
			}
			return nil
		})
	}
}

func (s *transfers) withID(id string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := s.run(id, r)
		if id == refused {
			http.Error(w, text, http.StatusPaymentRequired)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, text)
	})
}

func (s *transfers) chi(w http.ResponseWriter, r *http.Request) {
	s.withID(chi.URLParam(r, "id")).ServeHTTP(w, r)
}

func (s *transfers) gorilla(w http.ResponseWriter, r *http.Request) {
	s.withID(mux.Vars(r)["id"]).ServeHTTP(w, r)
}

func (s *transfers) echo(c *echo.Context) error {
	text := s.run(c.Param("id"), c.Request())
	if c.Param("id") == refused {
		return echo.NewHTTPError(http.StatusPaymentRequired, text)
	}
	return c.String(http.StatusCreated, text)
}

func (s *transfers) gin(c *gin.Context) {
	text := s.run(c.Param("id"), c.Request)
	if c.Param("id") == refused {
		c.AbortWithStatusJSON(http.StatusPaymentRequired, gin.H{"message": text})
		return
	}
	c.String(http.StatusCreated, "%s", text)
}

func inEach(t *testing.T, f func(t *testing.T, s *transfers, mount func(middleware) http.Handler)) {
	t.Helper()
	gin.SetMode(gin.TestMode)
	for name, mount := range mounts() {
		t.Run(name, func(t *testing.T) {
			s := &transfers{}
			f(t, s, func(m middleware) http.Handler { return mount(s, m) })
		})
	}
}

func newMiddleware(t *testing.T) middleware {
	t.Helper()
	m, err := httpidem.New(httpidem.Config{
		Store: memstore.New(), Scope: "accounts", Secret: []byte("sixteen bytes or more"),
		Principal: func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil },
	})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m.Handler
}

// answer is a response with its body.
type answer struct {
	*http.Response
	body string
}

// send asks through a real connection: net/http guesses content types.
func send(t *testing.T, h http.Handler, account, key, body string) answer {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/accounts/"+account+"/transfers", strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "alice")
	if key != "" {
		r.Header.Set(httpidem.DefaultHeader, key)
	}
	resp, err := server.Client().Do(r)
	require.NoError(t, err)
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return answer{resp, string(got)}
}

func TestFrameworks(t *testing.T) {
	inEach(t, func(t *testing.T, s *transfers, mount func(middleware) http.Handler) {
		h := mount(newMiddleware(t))
		for _, account := range []string{"7", refused} { // a kept success, a kept error
			s.runs.Store(0)
			key := `"key-of-` + account + `"`
			first := send(t, h, account, key, "10 EUR")
			require.Contains(t, first.body, account+" 1 key-of-"+account, "the handler sees the parameters of the route, and the key")
			if account == refused {
				require.Equal(t, http.StatusPaymentRequired, first.StatusCode)
			} else {
				require.Equal(t, http.StatusCreated, first.StatusCode)
			}
			require.False(t, httpidem.IsReplay(first.Response))

			again := send(t, h, account, key, "10 EUR")
			require.True(t, httpidem.IsReplay(again.Response))
			require.Equal(t, first.StatusCode, again.StatusCode)
			require.Equal(t, first.body, again.body)
			require.Equal(t, first.Header.Get("Content-Type"), again.Header.Get("Content-Type"))

			requireProblem(t, send(t, h, account, "", "10 EUR"), http.StatusBadRequest, "idempotency_key_missing")
			requireProblem(t, send(t, h, account, key, "20 EUR"), http.StatusUnprocessableEntity, "request_signature_mismatch")
			require.EqualValues(t, 1, s.runs.Load())
		}
	})
}

func requireProblem(t *testing.T, a answer, status int, code string) {
	t.Helper()
	require.Equal(t, status, a.StatusCode)
	require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
	var p struct{ Code string }
	require.NoError(t, json.Unmarshal([]byte(a.body), &p))
	require.Equal(t, code, p.Code)
}

// A handler in a transaction runs again on the same request if the database has rolled back the
// first run. A router must find its way a second time.
func TestFrameworksRunAgain(t *testing.T) {
	inEach(t, func(t *testing.T, s *transfers, mount func(middleware) http.Handler) {
		h := mount(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(httptest.NewRecorder(), r)
				next.ServeHTTP(w, r)
			})
		})
		a := send(t, h, "7", "", "")
		require.Equal(t, http.StatusCreated, a.StatusCode)
		require.Equal(t, "7 2 ", a.body)
		require.EqualValues(t, 2, s.runs.Load())
	})
}
