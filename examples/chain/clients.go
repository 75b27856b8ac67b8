package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/httpidem"
)

// clients make payments, each under one key until it is answered. A third of the clients send
// needless requests.
type clients struct {
	url, account  string
	payments, all int // and the number at once
	over          time.Duration
	hurry         string // the file that ends the pauses between payments; may be empty
	seed          uint64

	base      http.Transport
	requests  atomic.Int64 // sent requests, retries included
	impatient atomic.Int64 // requests sent although no request had failed
	replays   atomic.Int64 // answers stored by an earlier request
	answered  atomic.Int64 // answered payments

	mu    sync.Mutex
	ids   []string // of the payments, by order; empty: not answered
	wrong []string
}

// insistence is how long a client asks for one payment: longer than a database is away.
const insistence = 5 * time.Minute

// RoundTrip implements [http.RoundTripper], below the client's retries.
func (c *clients) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.base.RoundTrip(r)
}

// run returns after all payments are answered. Errors are in c.wrong.
func (c *clients) run(ctx context.Context) {
	c.ids = make([]string, c.payments+1)
	c.base.MaxIdleConnsPerHost = 2 * c.all
	defer c.base.CloseIdleConnections()
	client := &http.Client{Transport: &httpidem.Transport{
		Base: c, Attempts: 1000, Backoff: 50 * time.Millisecond, MaxBackoff: time.Second,
		MaxElapsed: insistence,
		// This server rolls back before an answer 500.
		Retry: func(r *http.Response) bool {
			return httpidem.DefaultRetry(r) || r.StatusCode == http.StatusInternalServerError
		},
	}}
	orders := make(chan int)
	var all sync.WaitGroup
	for range c.all {
		all.Go(func() {
			for order := range orders {
				if err := c.pay(ctx, client, order); err != nil {
					c.complain("order %d: %v", order, err)
				}
			}
		})
	}
	begin := time.Now()
	for order := 1; order <= c.payments && ctx.Err() == nil; order++ {
		due := begin.Add(c.over * time.Duration(order-1) / time.Duration(c.payments))
		if c.hurries() {
			due = begin
		}
		select {
		case <-time.After(time.Until(due)):
			orders <- order
		case <-ctx.Done():
		}
	}
	close(orders)
	all.Wait()
}

// hurries reports whether the rest of the payments begins at once.
func (c *clients) hurries() bool {
	if c.hurry == "" {
		return false
	}
	_, err := os.Stat(c.hurry)
	return err == nil
}

// pay pays for an order. A third of the clients send a needless request.
func (c *clients) pay(ctx context.Context, client *http.Client, order int) error {
	rnd := rand.New(rand.NewPCG(c.seed, uint64(order)))
	kind, patience := rnd.IntN(9), time.Duration(rnd.IntN(8000))*time.Microsecond
	var beside sync.WaitGroup
	defer beside.Wait()
	switch kind {
	case 0: // gives up at once, and asks again
		c.impatient.Add(1)
		short, cancel := context.WithTimeout(ctx, patience)
		_ = c.post(short, client, order) // ignores the result
		cancel()
	case 1: // clicks twice
		c.impatient.Add(1)
		beside.Go(func() {
			if err := c.post(ctx, client, order); err != nil {
				c.complain("order %d, again: %v", order, err)
			}
		})
	case 2: // has missed the answer
		c.impatient.Add(1)
		if err := c.post(ctx, client, order); err != nil {
			return err
		}
	}
	if err := c.post(ctx, client, order); err != nil {
		return err
	}
	c.answered.Add(1)
	return nil
}

// requestKey is the key of the request that pays for an order, as if stored with the order.
func requestKey(order string) string { return "order-" + order }

// post sends a request until it is answered.
func (c *clients) post(ctx context.Context, client *http.Client, order int) error {
	body := fmt.Sprintf(`{"order_id":%d,"amount":%d,"currency":"EUR","customer_id":"customer-%d"}`,
		order, 100+order, order%97)
	ctx = httpidem.WithKey(ctx, requestKey(strconv.Itoa(order)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/payments",
		strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("X-Account", c.account)
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	var paid struct{ ID string }
	if res.StatusCode != http.StatusCreated || json.Unmarshal(answer, &paid) != nil ||
		paid.ID == "" {
		return fmt.Errorf("answered %d: %.200s", res.StatusCode, answer)
	}
	if httpidem.IsReplay(res) {
		c.replays.Add(1)
	}
	c.note(order, paid.ID)
	return nil
}

// note records the answer. All answers to one key must name one payment.
func (c *clients) note(order int, id string) {
	c.mu.Lock()
	earlier := c.ids[order]
	c.ids[order] = id
	c.mu.Unlock()
	if earlier != "" && earlier != id {
		c.complain("order %d is paid by %s and by %s", order, earlier, id)
	}
}

func (c *clients) complain(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	const most = 5
	if len(c.wrong) < most {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}
