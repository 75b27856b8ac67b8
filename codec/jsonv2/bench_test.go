package jsonv2_test

import (
	stdjson "encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec/jsonv2"
)

// payment is the event of test/bench. As JSON it has about 230 bytes.
type payment struct {
	EventID  string `json:"event_id"`
	Type     string `json:"type"`
	Seq      int    `json:"seq"`
	OrderID  int64  `json:"order_id"`
	Account  int64  `json:"account"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Method   string `json:"method"`
	Customer string `json:"customer"`
	At       string `json:"occurred_at"`
}

// payments returns messages as in test/bench. Each has strings of its own, because this package
// keeps some of the last strings to save allocations.
func payments(tb testing.TB) (msgs []*idem.Message, size int64) {
	rng := rand.New(rand.NewPCG(1, 1))
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for seq := range 4096 {
		value, err := stdjson.Marshal(payment{
			EventID: fmt.Sprintf("019b767e-4c00-7%03x-8a51-%012x", rng.IntN(1<<12), rng.Int64N(1<<48)),
			Type:    "payment.completed", Seq: seq, OrderID: int64(seq) + 1,
			Account: rng.Int64N(1000) + 1, Amount: rng.Int64N(10_000) + 1, Currency: "EUR", Method: "card",
			Customer: fmt.Sprintf("customer-%08d", rng.IntN(1e8)),
			At:       began.Add(time.Duration(seq) * time.Millisecond).Format(time.RFC3339Nano),
		})
		require.NoError(tb, err)
		msgs = append(msgs, &idem.Message{Value: value})
		size += int64(len(value))
	}
	return msgs, size / int64(len(msgs))
}

// BenchmarkDecode decodes one payment: the cost of a fresh event.
func BenchmarkDecode(b *testing.B) {
	msgs, size := payments(b)
	for _, d := range []struct {
		name   string
		decode func(*idem.Message, any) error
	}{
		{"encodingjson", func(m *idem.Message, into any) error { return stdjson.Unmarshal(m.Value, into) }},
		{"jsonv2", jsonv2.DecoderOf()},
	} {
		b.Run(d.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(size)
			for i := 0; b.Loop(); i++ {
				if err := d.decode(msgs[i%len(msgs)], new(payment)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
