package dynamostore_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/dynamostore"
	"github.com/idem-go/idem/dedup/storetest"
	"github.com/stretchr/testify/require"
)

// hosts are the stores of one table, as processes on several hosts would have them. Each store
// looks at a claim as soon as another one has got or renewed it. So all stores have watched each
// claim from its beginning. The kit asks for a take-over right when the lease is over, and a store
// without a server's clock knows the end only of a lease that it has watched.
type hosts struct {
	client *dynamodb.Client
	table  string

	mu     sync.Mutex
	stores []*dynamostore.Store
}

func (h *hosts) open() *host {
	s := dynamostore.New(h.client, h.table)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stores = append(h.stores, s)
	return &host{Store: s, all: h}
}

// watch lets all stores but one look at the keys.
func (h *hosts) watch(ctx context.Context, but *dynamostore.Store, reqs []dedup.Request) error {
	h.mu.Lock()
	all := slices.Clone(h.stores)
	h.mu.Unlock()
	for _, s := range all {
		if s == but {
			continue
		}
		if err := s.Look(ctx, reqs, make([]dedup.Answer, len(reqs))); err != nil {
			return err
		}
	}
	return nil
}

// host is one store of several.
type host struct {
	*dynamostore.Store
	all *hosts
}

func (h *host) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request, answers []dedup.Answer) error {
	if err := h.Store.Claim(ctx, t, lease, reqs, answers); err != nil {
		return err
	}
	if err := h.all.watch(ctx, h.Store, reqs); err != nil {
		clear(answers)
		return err
	}
	return nil
}

func (h *host) Renew(ctx context.Context, lease time.Duration, claims []dedup.Claim) error {
	err := h.Store.Renew(ctx, lease, claims)
	var reqs []dedup.Request
	for _, c := range claims {
		reqs = append(reqs, dedup.Request{Key: c.Key, Retention: 1})
	}
	slices.SortFunc(reqs, func(a, b dedup.Request) int { return a.Key.Compare(b.Key) })
	_ = h.all.watch(ctx, h.Store, reqs) // if that fails, the error of Renew is still the one
	return err
}

func harness() storetest.Harness {
	return storetest.Harness{
		New: func(t testing.TB) dedup.Store {
			client, table := newTable(t)
			return (&hosts{client: client, table: table}).open()
		},
		Peer:  func(_ testing.TB, s dedup.Store) dedup.Store { return s.(*host).all.open() },
		Down:  down,
		Lease: 600 * time.Millisecond,
		Missing: []storetest.Ability{storetest.Lists, storetest.Progress,
			storetest.Register},
	}
}

func TestConformance(t *testing.T) {
	endpoint(t)
	storetest.Run(t, harness())
}

func TestOperator(t *testing.T) {
	endpoint(t)
	storetest.RunOperator(t, harness())
}

func BenchmarkStore(b *testing.B) {
	endpoint(b)
	storetest.Bench(b, func(t testing.TB) dedup.Store {
		client, table := newTable(t)
		return dynamostore.New(client, table)
	})
}

// without the server, a look fails as a claim does.
func TestLookDown(t *testing.T) {
	answers := []dedup.Answer{{Verdict: dedup.Done}}
	err := down(t).(dedup.Looker).Look(t.Context(), []dedup.Request{request("a")}, answers)
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.Zero(t, answers[0])
}
