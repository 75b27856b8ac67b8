package reaping

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"
)

// Config is the configuration of a reaper, whatever its store. The reapers of the stores have the
// same fields, and describe them.
type Config struct {
	Interval, Pause, Grace, DeadLetterRetention time.Duration
	Batch                                       int
	Logger                                      *slog.Logger
	Deleted                                     func(rows int64)
}

// Mistakes returns an error for each field that is out of range.
func (c *Config) Mistakes() (all []error) {
	for _, field := range []struct {
		name string
		bad  bool
	}{
		{"Interval", c.Interval < 0}, {"Grace", c.Grace < 0},
		{"DeadLetterRetention", c.DeadLetterRetention < 0},
		{"Batch", c.Batch < 0 || c.Batch > 10_000},
	} {
		if field.bad {
			all = append(all, fmt.Errorf("ReaperConfig.%s is out of range", field.name))
		}
	}
	return all
}

// SetDefaults sets the fields that have no value.
func (c *Config) SetDefaults() {
	c.Interval = cmp.Or(c.Interval, time.Minute)
	c.Batch = cmp.Or(c.Batch, 1000)
	c.Pause = cmp.Or(c.Pause, 20*time.Millisecond)
	c.Grace = cmp.Or(c.Grace, time.Minute)
	c.DeadLetterRetention = cmp.Or(c.DeadLetterRetention, 30*24*time.Hour)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}
