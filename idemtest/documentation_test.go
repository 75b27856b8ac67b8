package idemtest_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/internal/snippets"
)

// This file has the code of docs/testing.md. TestDocumentation compares the two.

type payment struct{ Amount int }

type shop struct {
	*idemtest.Faults
	mails   []string
	balance int
	rows    map[string]bool
}

func newShop(_ testing.TB, f *idemtest.Faults) *shop {
	return &shop{Faults: f, rows: make(map[string]bool)}
}

func (s *shop) send(ctx context.Context, to, key string) error {
	return s.CallWithKey(ctx, "send mail", key, func() { s.mails = append(s.mails, to) })
}

func (s *shop) state() any {
	slices.Sort(s.mails)
	return map[string]any{"mails": s.mails, "balance": s.balance}
}

func withKey(r *idem.Router, s *shop) {
	idem.On(r, "paid", func(ctx context.Context, e idem.Event[payment]) error {
		return s.send(ctx, "ann", e.IdempotencyKey())
	})
}

func TestPaidSurvives(t *testing.T) {
	idemtest.Torture(t, newShop, withKey, (*shop).state, idemtest.Records(
		idemtest.Record{ID: "p-1", Type: "paid", Key: "ann", Value: payment{1}},
	))
}

func withoutKey(r *idem.Router, s *shop) {
	idem.On(r, "paid", func(ctx context.Context, e idem.Event[payment]) error {
		return s.send(ctx, "ann", "")
	})
}

func timeAsKey(r *idem.Router, s *shop) {
	idem.On(r, "paid", func(ctx context.Context, e idem.Event[payment]) error {
		return s.send(ctx, "ann", time.Now().String())
	})
}

func withoutLock(r *idem.Router, s *shop) {
	idem.On(r, "paid", func(ctx context.Context, e idem.Event[payment]) error {
		var balance int
		if err := s.Call(ctx, "read", func() { balance = s.balance }); err != nil {
			return err
		}
		return s.CallWithKey(ctx, "write", e.IdempotencyKey(), func() {
			s.balance = balance + e.Data.Amount
		})
	})
}

func ignoresRows(r *idem.Router, s *shop) {
	idem.On(r, "paid", func(ctx context.Context, e idem.Event[payment]) error {
		// INSERT ... ON CONFLICT DO NOTHING
		if err := s.Call(ctx, "insert", func() { s.rows[e.ID] = true }); err != nil {
			return err
		}
		return s.Call(ctx, "add", func() { s.balance += e.Data.Amount })
	})
}

type receipt struct{ Order int }

func charge(ctx context.Context, g *dedup.Guard, s *shop) (receipt, bool, error) {
	key := dedup.Key{Scope: "shop", Type: "charge", ID: "order-7"}
	return dedup.Do(ctx, g, key, func(ctx context.Context) (receipt, error) {
		return receipt{Order: 7}, s.send(ctx, "ann", key.ID)
	})
}

func chargeByTime(ctx context.Context, g *dedup.Guard, s *shop) (receipt, bool, error) {
	key := dedup.Key{Scope: "shop", Type: "charge", ID: time.Now().String()}
	return dedup.Do(ctx, g, key, func(ctx context.Context) (receipt, error) {
		return receipt{Order: 7}, s.send(ctx, "ann", key.ID)
	})
}

func server(store dedup.Store, s *shop) (http.Handler, func()) {
	return serve(store, s.order)
}

func serverWithoutKey(store dedup.Store, s *shop) (http.Handler, func()) {
	return serve(store, s.orderWithoutKey)
}

func serve(store dedup.Store, order http.HandlerFunc) (http.Handler, func()) {
	m, err := httpidem.New(httpidem.Config{
		Store: store, Scope: "shop", Public: true, AnyPayload: true, Rerun: true,
	})
	if err != nil {
		panic(err)
	}
	return m.Handler(order), m.Close
}

func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	s.confirm(w, r, httpidem.ForwardKey(r.Context(), "mail"))
}

func (s *shop) orderWithoutKey(w http.ResponseWriter, r *http.Request) {
	s.confirm(w, r, "")
}

func (s *shop) confirm(w http.ResponseWriter, r *http.Request, key string) {
	if err := s.send(r.Context(), "ann", key); err != nil {
		httpidem.NotApplied(r.Context()) // so the request may run again
		http.Error(w, "no answer of the mail server", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func postOrder() *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"item":7}`))
	r.Header.Set("Idempotency-Key", "order-7")
	return r
}

func TestCharge(t *testing.T) {
	idemtest.TortureDo(t, newShop, charge, (*shop).state,
		idemtest.Guard(dedup.GuardConfig{Rerun: true}))
}

func TestOrders(t *testing.T) {
	idemtest.TortureHTTP(t, newShop, server, postOrder, (*shop).state)
}

// The stories of the page are reports of its code. A line "..." of the page stands for some lines.
func TestDocumentation(t *testing.T) {
	const page = "../docs/testing.md"
	file, err := os.ReadFile(page)
	require.NoError(t, err)
	_, text, ok := strings.Cut(string(file), "## Look for a schedule")
	require.True(t, ok)
	blocks := regexp.MustCompile("(?s)\n```(\\w*)\n(.*?\n)```\n").FindAllStringSubmatch(text, -1)
	blocks = slices.DeleteFunc(blocks, func(b []string) bool { return b[1] != "" }) // code
	seed := idemtest.Seed(1)
	one := idemtest.Records(idemtest.Record{ID: "p-1", Type: "paid", Key: "ann", Value: payment{1}})
	two := idemtest.Records(
		idemtest.Record{ID: "p-1", Type: "paid", Key: "ann", Value: payment{1}},
		idemtest.Record{ID: "p-2", Type: "paid", Key: "bob", Value: payment{2}},
	)
	handlers := func(h func(*idem.Router, *shop), records idemtest.TortureOption) func() (string, bool) {
		return func() (string, bool) {
			return idemtest.Search(t, newShop, h, (*shop).state, records, seed)
		}
	}
	reports := []func() (string, bool){
		handlers(withoutKey, one), handlers(timeAsKey, one), handlers(withoutLock, two), handlers(ignoresRows, one),
		func() (string, bool) {
			return idemtest.SearchDo(t, newShop, chargeByTime, (*shop).state, seed,
				idemtest.Guard(dedup.GuardConfig{Rerun: true}))
		},
		func() (string, bool) {
			return idemtest.SearchHTTP(t, newShop, serverWithoutKey, postOrder, (*shop).state, seed)
		},
	}
	assert.Len(t, blocks, len(reports), "stories in %s", page)
	for i, report := range reports {
		wanted, broken := report()
		require.True(t, broken, wanted)
		if i >= len(blocks) || !shows(blocks[i][2], wanted) {
			t.Errorf("the story %d of %s is not that of its code. The report, to paste it there:\n%s", i+1, page, wanted)
		}
	}
	code, err := os.ReadFile("documentation_test.go")
	require.NoError(t, err)
	for _, s := range snippets.Find(page, text, "go") {
		for _, part := range strings.Split(s.Text, "\n\n") {
			if !strings.Contains(string(code), part+"\n") {
				t.Errorf("%s: this code is not in documentation_test.go:\n%s", page, part)
			}
		}
	}
}

// shows reports whether a block has the lines of a report, or some of them.
func shows(block, report string) bool {
	parts := strings.Split(regexp.QuoteMeta("\n"+stable(block)), "\n\\.\\.\\.\n")
	return regexp.MustCompile("(?s)^" + strings.Join(parts, "\n.*\n") + "$").MatchString("\n" + stable(report))
}

// stable removes what random waits decide: how often a claim was busy, and the part of a second.
func stable(text string) string {
	text = regexp.MustCompile(`busy( \(\d+ times\))?\n`).ReplaceAllString(text, "busy\n")
	return regexp.MustCompile(`(?m)^ *(\d\S*s)  `).ReplaceAllStringFunc(text, func(after string) string {
		d, err := time.ParseDuration(strings.TrimSpace(after))
		if err != nil {
			return after
		}
		return d.Round(time.Second).String() + "  "
	})
}
