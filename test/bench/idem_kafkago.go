package main

import (
	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/kafkagoidem"
	"github.com/idem-go/idem/consumer"
)

// kafkaGoRows run naive code and Idem on kafka-go of segmentio.
func kafkaGoRows(n sizes) []row {
	of := func(deliveries int) spec { return spec{deliveries: deliveries, partitions: 6, seed: 1} }
	return []row{
		{
			name:    "kafkago-naive-postgres",
			about:   "one transaction an event, kafka-go",
			spec:    of(n.slow),
			consume: kafkaGoNaivePostgres,
			check:   inOrders,
			pay:     payOwn,
		},
		{
			name:    "kafkago-ontx",
			about:   "OnTx, a statement an event, on kafka-go",
			spec:    of(n.medium),
			consume: idemOnTx,
			check:   inOrders,
			pay:     payOwn,
			runner:  onKafkaGo,
		},
		{
			name:    "kafkago-onbatchtx",
			about:   "OnBatchTx, one UPDATE ... = ANY a batch, on kafka-go",
			spec:    of(n.fast),
			consume: idemOnBatchTx,
			check:   inOrders,
			runner:  onKafkaGo,
		},
	}
}

func onKafkaGo(cfg consumer.Config, r *idem.Router) (kafkaRunner, error) {
	return kafkagoidem.New(kafkagoidem.Config{
		Brokers: cfg.Brokers, Group: cfg.Group, Scope: cfg.Scope, Topics: cfg.Topics, Store: cfg.Store,
		Lanes: cfg.Lanes, Producer: cfg.Producer, Observers: cfg.Observers, Logger: cfg.Logger,
	}, r)
}
