package main

import (
	"context"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/internal/bootstrap"
	"github.com/idem-go/idem/internal/doctor"
	"github.com/idem-go/idem/ops"
)

// opsDoctor returns the doctor of the page, with the checks of idem doctor. It uses the stores that
// are open.
func (a *app) opsDoctor(
	f *opsFlags, access consumer.Config,
) func(context.Context) ([]ops.Finding, error) {
	in := a.doctorInput(&f.doctor)
	for i, url := range a.stores {
		l := a.opened[i]
		in.Stores = append(in.Stores, doctor.Store{
			URL: url,
			OpenRedis: func(context.Context) (redis.UniversalClient, string, error) {
				return l.redis, l.name, nil
			},
			OpenSQL: func(context.Context) (doctor.Checker, string, error) {
				return l.sql, l.name, nil
			},
		})
	}
	return func(ctx context.Context) ([]ops.Finding, error) {
		in, client := in, sarama.Client(nil)
		if len(access.Brokers) > 0 {
			in.Kafka = func(ctx context.Context) (c sarama.Client, err error) {
				client, err = doctorClient(ctx, access)
				return client, err
			}
		}
		found, err := doctor.Examine(ctx, in)
		if client != nil {
			_ = client.Close() // it has only read
		}
		all := make([]ops.Finding, len(found))
		for i, f := range found {
			all[i] = ops.Finding{
				ID: f.ID, On: f.On, Title: f.Title, Verdict: string(f.Verdict),
				Detail: f.Detail, Remedy: f.Remedy,
			}
		}
		return all, err
	}
}

// doctorClient connects with short time-outs, because a person waits.
func doctorClient(ctx context.Context, access consumer.Config) (sarama.Client, error) {
	sc, err := consumer.DefaultSaramaConfig(access)
	if err != nil {
		return nil, err
	}
	sc.Net.DialTimeout, sc.Net.ReadTimeout = min(sc.Net.DialTimeout, 5*time.Second), connectTimeout
	sc.Metadata.Retry.Max = 1
	client, err := bootstrap.Client(ctx, access.Brokers, sc)
	if err != nil { // the interface must be nil too
		return nil, err
	}
	return client, nil
}

// deadLetterTopic returns the function that names the dead-letter topic of a topic.
func (o *doctorOptions) deadLetterTopic(group string) func(topic string) string {
	return func(topic string) string {
		return strings.NewReplacer("{topic}", topic, "{group}", group).Replace(o.dlqTopic)
	}
}
