package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOutboxBrokerRefuses_O09 has a broker that refuses every tenth message, and four relays that
// are killed. No event is lost, and the events of an aggregate first appear in the order of the
// commits: no event is published behind one that failed (O-09).
func TestOutboxBrokerRefuses_O09(t *testing.T) {
	onEachOutbox(t, func(t *testing.T, b *mailbox) {
		f := refusing()
		b.flags = []string{"-refuse-every", "10"}
		f.run(t, b)
		v := b.requireSent(f.all, nil)
		refused := f.refused()
		require.Positive(t, refused, "no relay met a refusal")
		soaked(t, t.Name(), f.seed, len(f.all), f.hits, 0, 0, fmt.Sprintf(
			"0 missing, in order; %d calls with refused messages, %d repeats; %s",
			refused, v.repeats, seconds(f.took)))
	})
}

// TestOutboxOvertaken_O09 is the control of TestOutboxBrokerRefuses_O09. Its relays publish events
// behind a refused event of their aggregate. The verdict must find them.
func TestOutboxOvertaken_O09(t *testing.T) {
	onEachOutbox(t, func(t *testing.T, b *mailbox) {
		f := refusing()
		b.flags = []string{"-refuse-every", "10", "-overtake"}
		f.run(t, b)
		v := b.judge(f.all)
		require.Positive(t, f.refused(), "no relay met a refusal")
		require.Empty(t, head(v.missing), "%d events are missing", len(v.missing))
		require.NotEmpty(t, v.disorder, "the verdict has not seen that events were overtaken")
		soaked(t, t.Name(), f.seed, len(f.all), f.hits, 0, 0,
			fmt.Sprintf("%d events overtaken, as is to be", len(v.disorder)))
	})
}

// refusing is the size of the tests of O-09.
func refusing() *fire {
	f := &fire{
		events: 6_000, kills: 6, spread: 300 * time.Millisecond,
		writers: 16, pause: 200 * time.Millisecond,
	}
	if soak() {
		f.events, f.kills, f.spread = 100_000, 40, 2*time.Second
	}
	return f
}

// refused returns the number of calls in which messages were refused.
func (f *fire) refused() (n int) {
	for _, p := range f.relays.all {
		n += len(p.stdout.lines("refused "))
	}
	return n
}
