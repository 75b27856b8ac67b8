package httpidem_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// The client keeps one key over the retries of a request, and the server answers them once.
func Example() {
	if err := example(context.Background()); err != nil {
		panic(err)
	}
	// Output:
	// money moved
	// 201 Created false
	// 201 Created true
}

func example(ctx context.Context) error {
	store, secret, mux := memstore.New(), []byte("sixteen bytes or more"), http.NewServeMux()
	transfer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Println("money moved")
		w.WriteHeader(http.StatusCreated)
	})

	m, err := httpidem.New(httpidem.Config{Store: store, Scope: "transfers", Principal: account, Secret: secret})
	if err != nil {
		return err
	}
	mux.Handle("POST /transfers", authenticate(m.Handler(transfer)))

	defer m.Close()
	server := httptest.NewServer(mux)
	defer server.Close()
	url, order := server.URL+"/transfers", struct{ PaymentKey string }{"8e03978e-40d5-43dd-bc93-6894a57f9324"}
	for range 2 { // a client that was started again
		body := strings.NewReader(`{"amount": 10}`)

		client := &http.Client{Transport: &httpidem.Transport{}}
		req, err := http.NewRequestWithContext(httpidem.WithKey(ctx, order.PaymentKey), http.MethodPost, url, body)
		if err != nil {
			return err
		}
		resp, err := client.Do(req) // repeated with one key until the outcome is known

		if err != nil {
			return err
		}
		fmt.Println(resp.Status, httpidem.IsReplay(resp))
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	return nil
}

func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("X-Account", "alice")
		next.ServeHTTP(w, r)
	})
}

func account(r *http.Request) (string, error) {
	if a := r.Header.Get("X-Account"); a != "" {
		return a, nil
	}
	return "", httpidem.Refuse(http.StatusUnauthorized, "Log in first.")
}

type receipt struct{ Number int }

// Any function can be run once for each key, and its result be replayed.
func Example_function() {
	ctx, invoice := context.Background(), struct{ ID string }{"inv-7"}
	charge := func(context.Context, string) (receipt, error) {
		fmt.Println("charged")
		return receipt{Number: 1}, nil
	}
	guard := dedup.NewGuard(memstore.New(), dedup.GuardConfig{})
	defer guard.Close()
	for range 2 {
		key := dedup.Key{Scope: "billing", Type: "charge", ID: invoice.ID}
		receipt, replayed, err := dedup.Do(ctx, guard, key, func(ctx context.Context) (receipt, error) {
			return charge(ctx, key.UUID())
		})

		fmt.Println(receipt, replayed, err)
	}
	// Output:
	// charged
	// {1} false <nil>
	// {1} true <nil>
}
