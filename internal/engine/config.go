package engine

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/safetext"
	"github.com/idem-go/idem/observe"
)

// Config has the fields of Config of package idem, which documents them.
type Config struct {
	Store           dedup.Store
	Scope           string
	Group           string
	Lease           time.Duration
	StoreTimeout    time.Duration
	BusyWait        time.Duration
	Grace           time.Duration
	Producer        idemtype.Producer
	DeadLetterTopic func(topic string) string
	Shadow          bool
	Replay          *idemtype.Replay
	Observers       []observe.Observer
	Logger          *slog.Logger
	ErrorText       func(error) string
}

func (c Config) withDefaults() Config {
	c.Group = cmp.Or(c.Group, c.Scope)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, min(2*time.Second, c.Lease))
	c.BusyWait = cmp.Or(c.BusyWait, time.Second)
	c.Grace = cmp.Or(c.Grace, 10*time.Second)
	if c.DeadLetterTopic == nil {
		c.DeadLetterTopic = deadletter.Topic(c.Group)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.ErrorText == nil {
		c.ErrorText = safetext.Text
	}
	return c
}

func (c Config) validate() (problems []error) {
	if c.Scope == "" {
		problems = append(
			problems, errors.New("Config.Scope is empty: set it, usually to the consumer group"),
		)
	}
	if c.Replay != nil && c.Shadow {
		problems = append(
			problems, errors.New("Config.Replay and Config.Shadow exclude each other"),
		)
	}
	if c.Lease < time.Second {
		problems = append(
			problems,
			fmt.Errorf("Config.Lease is %s, at least 1s is needed to renew it in time", c.Lease),
		)
	}
	if c.BusyWait < 0 || c.Grace < 0 || c.StoreTimeout < 0 {
		problems = append(
			problems,
			errors.New(
				"Config.BusyWait, Config.Grace and Config.StoreTimeout must not be negative",
			),
		)
	}
	return problems
}
