package jsontime

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each time is unchanged or unknown, and has a form in JSON.
func TestKnown(t *testing.T) {
	east := time.FixedZone("east", 5*60*60)
	for name, c := range map[string]struct {
		at   time.Time
		want time.Time
	}{
		"zero":                {},
		"a usual one":         {time.Date(2026, 11, 29, 17, 0, 0, 7, east), time.Date(2026, 11, 29, 12, 0, 0, 7, time.UTC)},
		"the last second":     {time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)},
		"the year 10000":      {time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{}},
		"10000 in its zone":   {time.Date(10000, 1, 1, 1, 0, 0, 0, east), time.Date(9999, 12, 31, 20, 0, 0, 0, time.UTC)},
		"9999 in its zone":    {time.Date(9999, 12, 31, 20, 0, 0, 0, time.FixedZone("west", -5*60*60)), time.Time{}},
		"microseconds":        {time.UnixMilli(1.7e15), time.Time{}},
		"Kafka's none":        {time.UnixMilli(-1), time.UnixMilli(-1).UTC()},
		"before the year 1":   {time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC), time.Time{}},
		"the first of Kafka":  {time.UnixMilli(math.MinInt64), time.Time{}},
		"the latest of Kafka": {time.UnixMilli(math.MaxInt64), time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Known(c.at)
			require.Equal(t, c.want, got)
			text, err := json.Marshal(Time{c.at})
			require.NoError(t, err)
			var again Time
			require.NoError(t, json.Unmarshal(text, &again))
			require.True(t, c.want.Equal(again.Time), "%s", text)
			if p := Pointer(c.at); c.want.IsZero() {
				require.Nil(t, p)
			} else {
				require.Equal(t, c.want, *p)
			}
		})
	}
}
