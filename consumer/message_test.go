package consumer

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// A converter makes the messages of FromSarama, in shared memory that no message can write for
// another one.
func TestConverter_SameAsFromSarama(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var c converter
	var got, want []*idem.Message
	for i := range 5000 {
		m := &sarama.ConsumerMessage{
			Topic: "t", Partition: 3, Offset: int64(i), Timestamp: time.UnixMilli(rnd.Int64N(1e12)),
		}
		switch rnd.IntN(4) {
		case 0:
		case 1:
			m.Key, m.Value = []byte{}, []byte{}
		default:
			m.Key, m.Value = fmt.Appendf(nil, "k%d", i), fmt.Appendf(nil, "v%d", i)
		}
		for range rnd.IntN(4) * rnd.IntN(20) {
			h := &sarama.RecordHeader{Key: fmt.Appendf(nil, "h%d", rnd.IntN(200)), Value: fmt.Appendf(nil, "x%d", rnd.IntN(9))}
			if rnd.IntN(10) == 0 {
				h = nil
			}
			m.Headers = append(m.Headers, h)
		}
		got, want = append(got, c.message(m)), append(want, FromSarama(m))
		if n := len(got[i].Headers); rnd.IntN(3) == 0 && n == cap(got[i].Headers) {
			_ = append(got[i].Headers, idem.Header{Key: "added"}) // must not reach the next message
		}
	}
	require.Equal(t, want, got)
	require.LessOrEqual(t, len(c.names), maxNames)
}

func TestConverter_Allocates(t *testing.T) {
	m := &sarama.ConsumerMessage{
		Topic: "t", Value: []byte("v"),
		Headers: []*sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte("1")}, {Key: []byte("event-type"), Value: []byte("paid")}},
	}
	var c converter
	var kept *idem.Message
	require.LessOrEqual(t, testing.AllocsPerRun(10*messagesAtOnce, func() { kept = c.message(m) }), 0.1)
	require.Equal(t, FromSarama(m), kept)
}

// TestConverter_LargeMessagesAreAlone: a small message that is kept for long must not keep large
// ones in memory.
func TestConverter_LargeMessagesAreAlone(t *testing.T) {
	var c converter
	small := c.message(&sarama.ConsumerMessage{Value: []byte("small")})
	freed := make(chan struct{})
	func() {
		large := make([]byte, smallMessage+1)
		runtime.AddCleanup(&large[0], func(freed chan struct{}) { close(freed) }, freed)
		c.message(&sarama.ConsumerMessage{
			Value: large, Headers: []*sarama.RecordHeader{{Key: []byte("k"), Value: large}},
		})
	}()
	for range 100 {
		runtime.GC()
		select {
		case <-freed:
			runtime.KeepAlive(small)
			runtime.KeepAlive(&c)
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("a large message stays in memory")
}
