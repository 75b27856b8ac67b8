package publish

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/internal/testenv"
)

// TestOpen_OneBrokerAnswers_O15: one broker of a list is enough, wherever it stands in the list.
func TestOpen_OneBrokerAnswers_O15(t *testing.T) {
	_, brokers := fakeCluster(t, 1, []string{"orders"})
	for name, away := range map[string]string{
		"refuses": testenv.FreeAddr(t), "silent": testenv.SilentAddr(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range 6 {
				list := []string{away, brokers[0]}
				if i%2 == 1 {
					list = []string{brokers[0], away}
				}
				began := time.Now()
				p := openProducer(t, list, func(sc *sarama.Config) {})
				noErrors(t, p.ProduceEach(t.Context(), messages("orders", i, i+1)))
				require.Less(t, time.Since(began), aloneReadLimit, "no time-out of a read")
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		sc := settings()
		_, err := Open(t.Context(), []string{testenv.FreeAddr(t), testenv.FreeAddr(t)}, sc)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		_, err = Open(t.Context(), nil, sc)
		require.Error(t, err)
	})
}

// TestOpen_ContextEnds_O15: the end of the context ends Open, whichever answer is awaited.
func TestOpen_ContextEnds_O15(t *testing.T) {
	enough := errors.New("enough")
	ended := func(t *testing.T, brokers []string, asked <-chan struct{}) {
		t.Helper()
		ctx, end := context.WithCancelCause(t.Context())
		defer end(nil)
		result := make(chan error, 1)
		go func() {
			_, err := Open(ctx, brokers, settings())
			result <- err
		}()
		<-asked
		end(enough)
		select {
		case err := <-result:
			require.ErrorIs(t, err, enough)
		case <-time.After(aloneReadLimit / 2):
			t.Fatal("Open goes on")
		}
	}
	t.Run("a silent broker", func(t *testing.T) {
		now := make(chan struct{})
		close(now)
		ended(t, []string{testenv.SilentAddr(t)}, now)
	})
	t.Run("no ID", func(t *testing.T) {
		cluster, brokers := fakeCluster(t, 1, []string{"orders"})
		asked, awake := make(chan struct{}), make(chan struct{})
		defer close(awake)
		cluster.ControlKey(int16(kmsg.InitProducerID), func(kmsg.Request) (kmsg.Response, error, bool) {
			close(asked)
			cluster.SleepControl(func() { <-awake })
			return nil, nil, false
		})
		ended(t, brokers, asked)
	})
}

// TestCutAfter_O15: an answer at the last moment does not leave a producer without connections.
func TestCutAfter_O15(t *testing.T) {
	for answer, want := range map[time.Duration][]string{
		time.Second: nil, 11 * time.Second: {"cut", "mended"}, 20 * time.Second: {"cut", "mended"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var events []string
			end := cutAfter(10*time.Second, func() {
				time.Sleep(5 * time.Second)
				events = append(events, "cut")
			}, func() { events = append(events, "mended") })
			time.Sleep(answer)
			end()
			time.Sleep(time.Minute)
			require.Equal(t, want, events, answer)
		})
	}
}
