package idem_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// noStore answers at once, so that only the engine is measured.
type noStore struct{ verdict dedup.Verdict }

func (l *noStore) Claim(_ context.Context, _ dedup.Token, _ time.Duration, reqs []dedup.Request, answers []dedup.Answer) error {
	for i := range reqs {
		answers[i] = dedup.Answer{Verdict: l.verdict, Fence: 1}
	}
	return nil
}
func (*noStore) Renew(context.Context, time.Duration, []dedup.Claim) error { return nil }
func (*noStore) Complete(context.Context, []dedup.Completion) error        { return nil }
func (*noStore) Release(context.Context, []dedup.Release) error            { return nil }

func (l *noStore) ClaimTx(ctx context.Context, _ time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(struct{}) ([]dedup.Completion, error),
) error {
	_ = l.Claim(ctx, dedup.Token{}, 0, reqs, answers)
	if l.verdict != dedup.Fresh {
		return nil
	}
	_, err := fn(struct{}{})
	return err
}

// BenchmarkEngine measures the cost of the engine per event, with batches of 256 events of 250
// bytes and JSON decoding. BenchmarkEngine/decode-only shows the decoding by itself.
func BenchmarkEngine(b *testing.B) {
	one := func(context.Context, idem.Event[payload]) error { return nil }
	many := func(context.Context, []idem.Event[payload]) error { return nil }
	for _, c := range []struct {
		name     string
		verdict  dedup.Verdict
		register func(*idem.Router)
	}{
		{"on", dedup.Fresh, func(r *idem.Router) { idem.On(r, "paid", one) }},
		{"onbatch", dedup.Fresh, func(r *idem.Router) { idem.OnBatch(r, "paid", many) }},
		{"ontx", dedup.Fresh, func(r *idem.Router) {
			idem.OnTx(r, "paid", func(context.Context, struct{}, idem.Event[payload]) error { return nil })
		}},
		{"onbatchtx", dedup.Fresh, func(r *idem.Router) {
			idem.OnBatchTx(r, "paid", func(context.Context, struct{}, []idem.Event[payload]) error { return nil })
		}},
		{"duplicates", dedup.Done, func(r *idem.Router) { idem.OnBatch(r, "paid", many) }},
		{"nothing-to-decode", dedup.Fresh, func(r *idem.Router) {
			idem.OnBatchTx(r, "paid", func(context.Context, struct{}, []idem.Event[payload]) error { return nil },
				idem.Decode(func(*idem.Message, any) error { return nil }), idem.ID(idem.FromHeader("id")), idem.Type(idem.Fixed("paid")))
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := idem.NewRouter()
			c.register(r)
			p, err := idem.NewProcessor(r, idem.Config{Store: &noStore{c.verdict}, Scope: "g", Logger: slog.New(slog.DiscardHandler)})
			require.NoError(b, err)
			defer p.Close()
			const size = 256
			batch := make([]*idem.Message, size)
			for i := range batch {
				batch[i] = benchMessage(i)
			}
			_, err = p.HandleBatch(b.Context(), batch)
			require.NoError(b, err)
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += size {
				if _, err := p.HandleBatch(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchMessage has 250 bytes, and its identity and type in headers as well.
func benchMessage(i int) *idem.Message {
	id := fmt.Sprintf("0198f3a2-7c1b-7d3e-9f00-%012d", i*7919)
	return &idem.Message{
		Topic: "orders", Partition: 1, Offset: int64(i), Key: []byte(id[28:]), Time: time.Unix(1767322800, 0),
		Headers: []idem.Header{{Key: "id", Value: []byte(id)}},
		Value: fmt.Appendf(nil, `{"event_id":%q,"type":"paid","amount":7,"currency":"EUR","order_id":"order-%06d",`+
			`"customer":"customer-%06d","note":"the quick brown fox jumps over the lazy dog, twice, and once more for the road"}`, id, i, i),
	}
}
