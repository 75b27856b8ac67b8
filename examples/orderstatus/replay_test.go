package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/examples/internal/cli"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/replay"
)

// output keeps the output of a program.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// After a restore of the orders from a backup, a replay beside the running worker pays them again.
// Without -yes only the plan is printed. In the scope of the worker all payments are duplicates.
func TestReplayAfterRestore_Idempotent(t *testing.T) {
	for _, c := range []struct {
		flag, driver string
		dsn          func(testing.TB) string
	}{
		{"-postgres", "pgx", testenv.Postgres},
		{"-mysql", "mysql", testenv.MariaDB},
	} {
		t.Run(c.driver, func(t *testing.T) {
			brokers := testenv.Kafka(t)
			topic, dsn := testenv.CreateTopic(t, brokers, 3), c.dsn(t)
			args := []string{"-brokers", strings.Join(brokers, ","), "-topic", topic, "-group", "g-" + topic,
				c.flag, dsn}
			producer, err := consumer.OpenProducer(consumer.Config{Brokers: brokers})
			require.NoError(t, err)
			defer producer.Close()
			for i := range 60 {
				require.NoError(t, producer.Produce(t.Context(), &idem.Message{Topic: topic, Time: time.Now(),
					Key: fmt.Append(nil, i),
					Value: fmt.Appendf(nil,
						`{"event_id":"e%d","type":"payment.completed","payment_id":"p%d","order_id":%d,"amount":1,"currency":"EUR"}`,
						i, i, i+1)}))
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan int, 1)
			var log output
			go func() { ended <- run(ctx, append([]string{"-migrate", "-seed", "60"}, args...), &log) }()
			defer func() { stop(); require.Equal(t, cli.ExitOK, <-ended, "%s", &log) }()
			db, err := sql.Open(c.driver, dsn)
			require.NoError(t, err)
			defer db.Close()
			paid := func() (n int) {
				if db.QueryRowContext(t.Context(), `SELECT count(*) FROM orders WHERE status = 'paid'`).Scan(&n) != nil {
					return -1 // the table is missing yet
				}
				return n
			}
			require.Eventually(t, func() bool { return paid() == 60 }, time.Minute, 50*time.Millisecond, "%s", &log)
			_, err = db.ExecContext(t.Context(), `UPDATE orders SET status = 'pending', paid_by = NULL`)
			require.NoError(t, err)

			again := func(more ...string) string {
				var out output
				code := run(t.Context(), append(append(more, "-replay-from", "1h"), args...), &out)
				require.Equal(t, cli.ExitOK, code, "%s", &out)
				return out.String()
			}
			plan := again("-replay-name", "restore")
			require.Contains(t, plan, "scope g-"+topic+".replay.restore: at most 60 records")
			require.Contains(t, plan, "add -yes")
			require.Zero(t, paid())
			require.Contains(t, again("-yes"), "0 handled, 60 duplicates")
			require.Zero(t, paid())
			require.Contains(t, again("-yes", "-replay-name", "restore", "-replay-rate", "500"), "60 handled, 0 duplicates")
			require.Equal(t, 60, paid())
			require.Contains(t, again("-yes", "-replay-name", "restore"), "0 handled, 60 duplicates")
		})
	}
}

// IDs and errors of failed payments bring no control character to the terminal, and no line.
func TestPrintFailed_G04(t *testing.T) {
	const hostile = "p\x1b]0;title\a\n\u009b2Jfailed: \u202e"
	var out strings.Builder
	printFailed(&out, slices.Repeat([]replay.Failed{{
		Topic: "payments", Offset: 7, Key: dedup.Key{ID: hostile}, Class: idem.ClassFailed, Error: hostile,
	}}, maxFailedShown+2))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	require.Len(t, lines, maxFailedShown+1)
	require.Contains(t, lines[0], `failed: payments/0/7 payment "p\x1b]0;title`)
	require.Equal(t, "and 2 more", lines[maxFailedShown])
	for _, line := range lines {
		require.NotContains(t, line, "\u202e")
		require.False(t, strings.ContainsFunc(line, unicode.IsControl), "%q", line)
	}
}
