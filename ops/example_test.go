package ops_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/ops"
)

func Example() {
	monitor := ops.NewMonitor()
	cfg := consumer.Config{
		Brokers: []string{"localhost:9092"}, Group: "orders", Topics: []string{"payments"},
		Store:     memstore.New(memstore.Volatile()),
		Observers: []observe.Observer{monitor},
	}
	page, err := ops.NewHandler(ops.Config{
		Consumer: cfg,
		Auth: func(r *http.Request) (string, error) { // from the program's own sign-in
			if name, _, ok := r.BasicAuth(); ok && name == "ada" {
				return name, nil
			}
			return "", errors.New("not an operator")
		},
		AllowReplay: true,
		Prefix:      "/admin/idem/",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer page.Close(context.Background())
	mux := http.NewServeMux()
	mux.Handle("/admin/idem/", page)

	ask := httptest.NewRequest(http.MethodGet, "/admin/idem/activity", nil)
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, ask)
	fmt.Println(answer.Code)
	ask.SetBasicAuth("ada", "")
	answer = httptest.NewRecorder()
	mux.ServeHTTP(answer, ask)
	fmt.Println(answer.Code)
	// Output:
	// 403
	// 200
}

func ExampleNewHandler_refuses() {
	_, err := ops.NewHandler(ops.Config{})
	fmt.Println(errors.Is(err, ops.ErrNoAuth))
	// Output: true
}
