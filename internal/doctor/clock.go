package doctor

import (
	"fmt"
	"time"
)

// compareClocks reads another clock five times, and uses the fastest answer. The error of skew is
// at most half the round trip of that answer: within.
func compareClocks(
	now func() time.Time, ask func() (time.Time, error),
) (skew, within time.Duration, err error) {
	for try := range 5 {
		began := now()
		at, err := ask()
		if err != nil {
			return 0, 0, err
		}
		half := now().Sub(began) / 2
		if try == 0 || half < within {
			skew, within = at.Sub(began.Add(half)), half
		}
	}
	return skew, within, nil
}

// checkClock judges the difference of a store's clock from this host's. Leases and retention use
// the clock of the store only. The age of events uses Kafka's clock, with a margin of a minute.
func checkClock(r *Findings, id, on string, skew, within time.Duration) {
	sure := max(0, skew.Abs()-within)
	text := fmt.Sprintf("the store's clock differs by %s from this host's, plus or minus %s",
		skew.Round(time.Millisecond), within.Round(time.Millisecond))
	const remedy = "NTP on all hosts: chronyc tracking, timedatectl"
	r.choose(id, on, text,
		choice{sure > time.Minute, Bad, text + ": if Kafka's clock agrees with this host's, " +
			"the age of events is wrong by that much, and some are too old or forgotten too early",
			remedy},
		choice{sure > 2*time.Second, Warn,
			text + ": clocks with NTP do not differ by that much", remedy})
}
