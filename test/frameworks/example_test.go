package frameworks

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v5"

	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// account returns the sender of a request, as your authentication has found out.
func account(r *http.Request) (string, error) {
	if name, _, ok := r.BasicAuth(); ok {
		return name, nil
	}
	return "", httpidem.Refuse(http.StatusUnauthorized, "Who are you?")
}

var config = httpidem.Config{Store: memstore.New(), Scope: "transfers", Principal: account, Secret: []byte("sixteen bytes or more")}

// Routes of chi take the middleware as it is. With and Group put it behind the routing, where it
// belongs.
func Example_chi() {
	m, err := httpidem.New(config)
	if err != nil {
		panic(err)
	}
	defer m.Close()

	r := chi.NewRouter()
	r.With(m.Handler).Post("/accounts/{id}/transfers", func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("money leaves account", chi.URLParam(r, "id"))
		w.WriteHeader(http.StatusCreated)
	})

	twice(r, "chi-1")
	// Output:
	// money leaves account 7
	// 201
	// 201 replayed
}

// In echo errors of handlers must be answered inside of the middleware, or an empty answer is kept
// in their place.
func Example_echo() {
	m, err := httpidem.New(config)
	if err != nil {
		panic(err)
	}
	defer m.Close()
	once := func(next echo.HandlerFunc) echo.HandlerFunc {
		return echo.WrapMiddleware(m.Handler)(func(c *echo.Context) error {
			if err := next(c); err != nil {
				c.Echo().HTTPErrorHandler(c, err)
			}
			return nil
		})
	}

	e := echo.New()
	e.POST("/accounts/:id/transfers", func(c *echo.Context) error {
		fmt.Println("no money in account", c.Param("id"))
		return echo.NewHTTPError(http.StatusPaymentRequired, "no money")
	}, once)

	twice(e, "echo-1")
	// Output:
	// no money in account 7
	// 402
	// 402 replayed
}

func twice(h http.Handler, key string) {
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/accounts/7/transfers", strings.NewReader(`{"amount":10}`))
		r.SetBasicAuth("alice", "secret")
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(strings.TrimSpace(fmt.Sprint(w.Code, " ", map[bool]string{true: "replayed"}[httpidem.IsReplay(w.Result())])))
	}
}
