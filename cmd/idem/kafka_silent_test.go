package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/internal/testenv"
)

// silentBroker accepts connections and never answers, as a broker that hangs. It counts the requests.
func silentBroker(t *testing.T) (addr string, asked *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	asked = new(atomic.Int32)
	var accepting, reading sync.WaitGroup
	var held []net.Conn
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil { // the test is over
				return
			}
			held = append(held, c)
			reading.Go(func() {
				for {
					var size uint32
					if binary.Read(c, binary.BigEndian, &size) != nil {
						return
					}
					asked.Add(1)
					if _, err := io.CopyN(io.Discard, c, int64(size)); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		accepting.Wait()
		for _, c := range held {
			_ = c.Close()
		}
		reading.Wait()
	})
	return l.Addr().String(), asked
}

// silentRelay returns the access of a relay to a broker that never answers.
func silentRelay(t *testing.T) (a *app, access consumer.Config, asked *atomic.Int32) {
	t.Helper()
	broker, asked := silentBroker(t)
	a = &app{brokers: []string{broker}}
	access, err := a.kafkaAccess("idem-relay")
	require.NoError(t, err)
	return a, access, asked
}

// Every verb ends within half a minute at a broker that accepts connections and never answers. The
// test waits for less than a verb does. The rest of the time of a verb is added.
func TestSilentBroker(t *testing.T) {
	t.Parallel()
	const wait = kafkaWait / 16
	soonEnough := func(t *testing.T, began time.Time, asked *atomic.Int32) {
		require.Positive(t, asked.Load())
		took := time.Since(began)
		require.GreaterOrEqual(t, took, wait, "it waits for an answer")
		verb := took + time.Duration(asked.Load())*(kafkaWait-wait)
		require.Less(t, verb, 30*time.Second)
	}
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
			broker, asked := silentBroker(t)
			_, known := memory()
			all := append(strings.Fields(args), "--brokers", broker)
			if strings.Contains(args, "replay") || strings.Contains(args, "import") {
				all = append(all, "--store", inMemory)
			}
			var stdout, stderr bytes.Buffer
			a := &app{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, known: known, kafkaWait: wait}
			began := time.Now()
			require.Equal(t, code, a.run(t.Context(), all), "%s%s", &stdout, &stderr)
			soonEnough(t, began, asked)
			require.Contains(t, stdout.String()+stderr.String(), "kafka "+broker)
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		broker, asked := silentBroker(t)
		ctx, interrupt := context.WithCancelCause(t.Context())
		ended := make(chan int, 1)
		var stdout, stderr bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, kafkaWait: time.Hour}
		go func() { ended <- a.run(ctx, []string{"lag", "-G", "g", "--brokers", broker}) }()
		require.Eventually(t, func() bool { return asked.Load() > 0 }, 30*time.Second, time.Millisecond)
		interrupt(errors.New("enough"))
		require.Equal(t, exitFailure, <-ended)
		require.Contains(t, stderr.String(), "kafka "+broker+": enough")
	})
	t.Run("producer of the relay", func(t *testing.T) {
		t.Parallel()
		a, access, asked := silentRelay(t)
		began := time.Now()
		_, err := a.openProducer(t.Context(), access)
		require.Less(t, time.Since(began), 30*time.Second)
		require.Positive(t, asked.Load())
		require.ErrorContains(t, err, "kafka "+a.brokers[0])
	})
	t.Run("interrupted producer", func(t *testing.T) {
		t.Parallel()
		a, access, asked := silentRelay(t)
		ctx, interrupt := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := (&relayStart{app: a}).awaitProducer(ctx, access, time.Hour, slog.New(slog.DiscardHandler))
			ended <- err
		}()
		require.Eventually(t, func() bool { return asked.Load() > 0 }, 30*time.Second, time.Millisecond)
		enough := errors.New("enough")
		interrupt(enough)
		select {
		case err := <-ended:
			require.ErrorIs(t, err, enough)
		case <-time.After(5 * time.Second):
			t.Fatal("the connect goes on")
		}
	})
	t.Run("the wait of a verb", func(t *testing.T) {
		a := &app{brokers: []string{"b:1"}}
		cfg, err := a.kafkaConfig()
		require.NoError(t, err)
		for _, of := range []time.Duration{cfg.Net.DialTimeout, cfg.Net.ReadTimeout, cfg.Net.WriteTimeout} {
			require.Equal(t, kafkaWait, of)
		}
		require.Equal(t, 10*time.Second, cfg.Metadata.Timeout)
	})
}

// Brokers that are silent or refuse connections do not keep a verb from the broker that answers,
// whichever place it has in --brokers.
func TestOneBrokerAnswers(t *testing.T) {
	t.Parallel()
	cluster, _ := fakeKafka(t, 1, kfake.SeedTopics(1, "orders", "orders.g.dlq"))
	answers := cluster.ListenAddrs()[0]
	silent := make([]string, 3)
	for i := range silent {
		silent[i], _ = silentBroker(t)
	}
	refuses := testenv.FreeAddr(t)
	for name, brokers := range map[string][]string{
		"silent first":    {silent[0], answers},
		"refuses first":   {refuses, answers},
		"all others":      {silent[0], refuses, silent[1], silent[2], answers},
		"the first":       {answers, silent[0], refuses},
		"no other broker": {answers},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := strings.Join(brokers, ",")
			began := time.Now()
			command(t, "dlq", "ls", "-G", "g", "-t", "orders", "--brokers", all).ok(t)
			require.Less(t, time.Since(began), 30*time.Second)
			a := &app{brokers: brokers}
			access, err := a.kafkaAccess("idem-relay")
			require.NoError(t, err)
			began = time.Now()
			p, err := a.openProducer(t.Context(), access)
			require.NoError(t, err)
			require.Less(t, time.Since(began), 30*time.Second)
			require.NoError(t, p.Close())
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		r := command(t, "lag", "-G", "g", "--brokers", refuses+","+testenv.FreeAddr(t))
		r.failed(t, exitFailure, "kafka "+refuses+",", "connection refused")
	})
}
