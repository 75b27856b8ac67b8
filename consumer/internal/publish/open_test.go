package publish

import (
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

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
		_, err := Open([]string{testenv.FreeAddr(t), testenv.FreeAddr(t)}, sc)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		_, err = Open(nil, sc)
		require.Error(t, err)
	})
}
