package idem_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
)

// Middleware around all handlers of a router. It logs, and refuses the events of a blocked tenant.
func ExampleRouter_Use() {
	logged := func(next idem.HandlerFunc) idem.HandlerFunc {
		return func(ctx context.Context, c *idem.Call) error {
			err := next(ctx, c)
			fmt.Println(c.Handler(), c.Event(0).ID, "error:", err)
			return err
		}
	}
	authorised := func(next idem.HandlerFunc) idem.HandlerFunc {
		return func(ctx context.Context, c *idem.Call) error {
			for i := range c.Len() {
				if c.Event(i).Tenant == "blocked" {
					return idem.Permanent(errors.New("tenant is blocked"))
				}
			}
			return next(ctx, c)
		}
	}
	router := idem.NewRouter()
	router.Use(logged, authorised)
	idem.On(router, "order.created", func(_ context.Context, e idem.Event[OrderCreated]) error {
		fmt.Println("mail to", e.Data.Email)
		return nil
	}, idem.Name("mail"))
	p, err := idem.NewProcessor(router, idem.Config{Store: memstore.New(), Scope: "mailer"})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	fmt.Println(p.Handle(context.Background(), created))
	// Output:
	// mail to a@example.com
	// mail 42 error: <nil>
	// <nil>
}
