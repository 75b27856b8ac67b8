package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// The broker is gone while writers go on: they do not notice, the relay does not grow, and when the broker is back all of it is sent (O-15).
func TestOutboxBrokerAway(t *testing.T) {
	needTime(t)
	const most = 150 << 20
	length := 15 * time.Second
	if soak() {
		length = 2 * time.Minute
	}
	_, seed := newSeeded(t)
	started := time.Now()
	services := privateServices(t, "kafka")
	t.Logf("Kafka is up after %s", seconds(time.Since(started)))
	b := newMailbox(t, []string{services.brokers}, testenv.Postgres(t), outboxPartitions)
	relay := b.relay("relay")
	began := time.Now() // of 2,000 rows a second and more, as far as the machine goes
	w := b.write(24, seed, &writers{size: 20, pause: 200 * time.Millisecond, goal: int64(2000 * (length + 3*time.Second).Seconds())})
	require.Eventually(t, func() bool { relay.requireRunning(); return sentBy(relay) > 500 }, 30*time.Second, 20*time.Millisecond, relay.stderr.tail(20))
	before := peakMemory(t, relay)
	services.outage("kafka", length)
	relay.requireRunning()
	w.requireStands(t)
	w.end(true)
	rate := float64(w.events.Load()) / time.Unix(0, w.last.Load()).Sub(began).Seconds()
	back, left := time.Now(), b.waiting()
	require.Greater(t, left, int(length.Seconds())*100, "nothing has piled up")
	b.waitEmpty(2*time.Minute+length, relay)
	drained := time.Since(back)
	peak := peakMemory(t, relay)
	relay.requireRunning()
	relay.stop(20 * time.Second)
	v := b.requireSent(b.committed(), nil)
	soaked(t, t.Name(), seed, int(w.events.Load()), 0, 1, 0, fmt.Sprintf(
		"0 missing, in order; broker %s away at %.0f rows/s; %d rows sent in %s: %.0f rows/s; %d repeats; the relay had %d MB at most, %d before",
		length, rate, left, seconds(drained), float64(left)/drained.Seconds(), v.repeats, peak>>20, before>>20))
	require.Less(t, peak, most)
}
