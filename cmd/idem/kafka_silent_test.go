package main

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// silentBroker accepts connections and never answers, as a broker that hangs.
func silentBroker(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var accepting sync.WaitGroup
	var held []net.Conn
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil { // the test is over
				return
			}
			held = append(held, c)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		accepting.Wait()
		for _, c := range held {
			_ = c.Close()
		}
	})
	return l.Addr().String()
}

// Every verb ends within half a minute at a broker that accepts connections and never answers.
func TestSilentBroker(t *testing.T) {
	t.Parallel()
	broker := silentBroker(t)
	soonEnough := func(t *testing.T, began time.Time) { require.Less(t, time.Since(began), 30*time.Second) }
	for args, code := range map[string]int{
		"lag -G g":                  exitFailure,
		"dlq ls -t orders -G g":     exitFailure,
		"dlq replay -t orders -G g": exitFailure,
		"rewind -G g --to 2h --yes": exitFailure,
		"import -G g --from-topic t --to-committed --type-fixed x -y": exitFailure,
		"doctor -G g": exitFound,
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			_, known := memory()
			all := append(strings.Fields(args), "--brokers", broker)
			if strings.Contains(args, "replay") || strings.Contains(args, "import") {
				all = append(all, "--store", inMemory)
			}
			began := time.Now()
			r := commandWith(t, known, "", all...)
			soonEnough(t, began)
			require.Equal(t, code, r.code, "%s%s", r.stdout, r.stderr)
			require.Contains(t, r.stdout+r.stderr, "kafka "+broker)
		})
	}
	t.Run("producer of the relay", func(t *testing.T) {
		t.Parallel()
		a := &app{brokers: []string{broker}}
		access, err := a.kafkaAccess("idem-relay")
		require.NoError(t, err)
		began := time.Now()
		_, err = a.openProducer(access)
		soonEnough(t, began)
		require.ErrorContains(t, err, "kafka "+broker)
	})
}
