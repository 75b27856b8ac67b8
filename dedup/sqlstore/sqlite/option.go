package sqlite

import "github.com/idem-go/idem/dedup/sqlstore"

// Option configures [Open].
type Option func(*config)

type config struct {
	reap   bool
	reaper sqlstore.ReaperConfig
}

// Reap configures the deletion of expired rows. Name scopes without a Kafka consumer, such as those
// of HTTP requests, in [sqlstore.ReaperConfig].WallClock: their rows are not deleted otherwise.
func Reap(cfg sqlstore.ReaperConfig) Option {
	return func(c *config) { c.reap, c.reaper = true, cfg }
}

// NoReaper leaves the deletion of expired rows to you. Until you run a [sqlstore.Reaper], the file
// only grows.
func NoReaper() Option { return func(c *config) { c.reap = false } }
