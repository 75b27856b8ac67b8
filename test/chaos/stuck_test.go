package chaos

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A handler hangs at the head of a million events. The events behind it wait in Kafka and not in
// memory, the other partition goes on, and the member stays in its group (rule 25, K-14).
func TestStuckHandlerBoundsMemory(t *testing.T) {
	needTime(t)
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells how much memory a process has had")
	}
	const behind, beside = 1_000_000, 3_000
	const most = 256 << 20 // bytes: of this, a Go program with its caches and sarama's buffers takes some 60 MB by itself
	l := newLine(t, inPgstore(t), nil, 1)
	fill := func(partition int32, n int, typ func(i int) string) {
		var failed atomic.Int64
		var all sync.WaitGroup
		all.Add(n)
		for i := range n {
			key := strconv.Itoa(i % 1000)
			l.producer.client.Produce(t.Context(), &kgo.Record{
				Partition: partition, Key: []byte(key),
				Value: fmt.Appendf(nil, `{"event_id":"p%d-%07d","type":%q,"key":%d,"seq":%d}`, partition, i, typ(i), int(partition)*1000+i%1000, i/1000),
			}, func(_ *kgo.Record, err error) {
				if err != nil {
					failed.Add(1)
				}
				all.Done()
			})
		}
		all.Wait()
		require.Zero(t, failed.Load())
	}
	fill(0, behind, func(i int) string {
		if i == 0 {
			return "stuck"
		}
		return "tx"
	})
	w := l.worker("a")
	l.kafka.waitMembers(l.group, 1)
	fill(1, beside, func(int) string { return "tx" })
	require.Eventually(t, func() bool {
		w.requireRunning()
		return l.count(`SELECT count(*) FROM effects WHERE key >= 1000`) == beside
	}, 60*time.Second, 50*time.Millisecond, "the other partition stands still:\n%s", w.stderr.tail(20))
	// All events that may run ahead of the hanging one have run when the count stands still.
	ahead := -1
	require.Eventually(t, func() bool {
		now := l.count(`SELECT count(*) FROM effects WHERE key < 1000`)
		still := now == ahead && now > 0
		ahead = now
		return still
	}, 60*time.Second, time.Second)
	require.Less(t, ahead, 5000, "events handled ahead of the one that hangs")
	committed, err := l.kafka.committed(l.group, l.topic)
	require.NoError(t, err)
	require.Zero(t, committed[0])
	peak := peakMemory(t, w)
	t.Logf("%d events behind the one that hangs, %d handled ahead of it, %d MB at most", behind, ahead, peak>>20)
	require.Less(t, peak, most)
	w.requireRunning()
	l.kafka.waitMembers(l.group, 1)
	w.stop(20 * time.Second)
}

// peakMemory is the most that a process ever had in memory, in bytes.
func peakMemory(t testing.TB, p *proc) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(t, err)
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(t, m)
	kb, err := strconv.Atoi(string(m[1]))
	require.NoError(t, err)
	return kb << 10
}
