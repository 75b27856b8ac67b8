package main

import (
	"context"
	"net/http"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/kgoidem"
	"github.com/idem-go/idem/consumer"
)

// worker is a consumer on either Kafka client.
type worker interface {
	Run(ctx context.Context) error
	Handler() http.Handler
}

const (
	onSarama  = "sarama"
	onFranzGo = "franz-go"
)

// newWorker returns a consumer on the client of -client.
func (o *options) newWorker(cfg consumer.Config, router *idem.Router) (worker, error) {
	if o.client == onSarama {
		return consumer.New(cfg, router)
	}
	return kgoidem.New(kgoidem.Config{
		Brokers: cfg.Brokers, Group: cfg.Group, Topics: cfg.Topics, InstanceID: cfg.InstanceID,
		Store: cfg.Store, Lease: cfg.Lease, CreateDeadLetterTopics: cfg.CreateDeadLetterTopics,
		Observers: cfg.Observers, Logger: cfg.Logger, Protocol: kgoidem.Eager,
	}, router)
}
