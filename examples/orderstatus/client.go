package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/kgoidem"
	"github.com/idem-go/idem/consumer"
)

const (
	onSarama  = "sarama"
	onFranzGo = "franz-go"
)

// newWorker returns a consumer on the client of -client.
func (o options) newWorker(
	cfg consumer.Config, router *idem.Router,
) (interface{ Run(context.Context) error }, error) {
	if o.client == onSarama {
		return consumer.New(cfg, router)
	}
	var more []kgo.Opt
	if o.sessionTimeout > 0 {
		more = []kgo.Opt{kgo.SessionTimeout(o.sessionTimeout), kgo.HeartbeatInterval(o.sessionTimeout / 6)}
	}
	return kgoidem.New(kgoidem.Config{
		Brokers: cfg.Brokers, Group: cfg.Group, Topics: cfg.Topics, InstanceID: cfg.InstanceID,
		Store: cfg.Store, NewScope: cfg.NewScope, Shadow: cfg.Shadow,
		CreateDeadLetterTopics: cfg.CreateDeadLetterTopics,
		Observers:              cfg.Observers, Logger: cfg.Logger, Options: more,
		Protocol: kgoidem.Eager, // as the worker on sarama, so that both may be in one group
	}, router)
}
