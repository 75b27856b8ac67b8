package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"
)

// This file is the worker of a hundred blog posts: GET, SETNX with the full TTL, send, SET. An
// event that another worker holds is skipped. The worker is the negative control: the harness must
// see that it loses events.

const blogPost = "blogpost"

func playRole(role string) error {
	switch role {
	case blogPost:
		return blogWorkerRole()
	case registryRole:
		return serveRegistry(os.Getenv("CHAOS_REGISTRY"))
	case storeRole:
		return storeWorkerRole(os.Args[1:])
	}
	return fmt.Errorf("no role %q", role)
}

func blogWorkerRole() error {
	opts, err := redis.ParseURL(os.Getenv("CHAOS_REDIS"))
	if err != nil {
		return err
	}
	w := &blogWorker{redis: redis.NewClient(opts), prefix: os.Getenv("CHAOS_GROUP") + ":"}
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Group.InstanceId = os.Getenv("CHAOS_INSTANCE")
	group, err := sarama.NewConsumerGroup(strings.Split(os.Getenv("CHAOS_BROKERS"), ","), os.Getenv("CHAOS_GROUP"), cfg)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{os.Getenv("CHAOS_TOPIC")}, w); err != nil {
			return err
		}
	}
	return group.Close()
}

type blogWorker struct {
	redis  *redis.Client
	prefix string
}

func (w *blogWorker) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (w *blogWorker) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (w *blogWorker) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		if err := w.handle(session.Context(), string(m.Key)); err != nil {
			return err
		}
		session.MarkMessage(m, "")
	}
	return nil
}

func (w *blogWorker) handle(ctx context.Context, id string) error {
	const ttl = 24 * time.Hour
	switch state, err := w.redis.Get(ctx, w.prefix+id).Result(); {
	case err != nil && !errors.Is(err, redis.Nil):
		return err
	case state == "COMPLETED":
		return nil
	}
	mine, err := w.redis.SetNX(ctx, w.prefix+id, "PENDING", ttl).Result()
	if err != nil || !mine {
		return err // another worker is handling it
	}
	time.Sleep(sendTime) // the mail server
	fmt.Println(`{"event_id":"` + id + `"}`)
	return w.redis.Set(ctx, w.prefix+id, "COMPLETED", ttl).Err()
}

// sendTime is how long a mail takes.
const sendTime = 2 * time.Millisecond

// blogWorkerProc starts the worker: this test binary in another role.
func blogWorkerProc(t testing.TB, name, brokers, topic, group, redisURL string) *proc {
	t.Helper()
	return start(t, name, os.Args[0], []string{
		roleEnv + "=" + blogPost, "CHAOS_BROKERS=" + brokers, "CHAOS_TOPIC=" + topic, "CHAOS_GROUP=" + group,
		"CHAOS_INSTANCE=" + name, "CHAOS_REDIS=" + redisURL,
	})
}
