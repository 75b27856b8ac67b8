package lane

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/idem-go/idem"
)

// each settles at once and reports every message, as a Processor does for events that it runs one
// by one.
type each struct{ instant }

func (each) Settle(_ context.Context, msgs []*idem.Message, progress func(int)) error {
	for i := range msgs {
		progress(i + 1)
	}
	return nil
}

// BenchmarkLane measures the cost of a message in the queue, the lanes and the tracker, without a
// handler.
func BenchmarkLane(b *testing.B) {
	for _, lanes := range []int{1, 16} {
		for name, h := range map[string]handler{"batch": instant{}, "each": each{}} {
			for _, keys := range []int{1, 1000} {
				b.Run(fmt.Sprintf("lanes=%d/progress=%s/keys=%d", lanes, name, keys),
					func(b *testing.B) {
						benchmarkLane(b, h, lanes, keys)
					})
			}
		}
	}
}

func benchmarkLane(b *testing.B, h handler, lanes, keys int) {
	msgs := make([]*idem.Message, keys)
	for i := range msgs {
		msgs[i] = message(1)
		msgs[i].Key = []byte(strconv.Itoa(i))
	}
	p := start(h, "t", 3, Config{Lanes: lanes})
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if err := p.Push(b.Context(), msgs[i%keys]); err != nil {
			b.Fatal(err)
		}
		i++
	}
	for p.Pending() > 0 {
		<-p.Advanced()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	if err := p.Close(context.Background(), nil); err != nil {
		b.Fatal(err)
	}
}
