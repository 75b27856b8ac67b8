package chaos

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// mailing is a load of mails for workers that write a line of JSON to standard output for each they
// send.
type mailing struct {
	kafka        *cluster
	topic, group string
	producer     *producer
}

func newMailing(t testing.TB, kafka *cluster, partitions int32) *mailing {
	t.Helper()
	m := &mailing{kafka: kafka}
	m.topic, m.group = kafka.topic("mails", partitions)
	// The notifier remembers across groups: the IDs are this run's own.
	m.producer = newProducer(t, kafka.brokers, m.topic, func(d *delivery) []byte { return notification(m.topic, d) })
	return m
}

// sharedRedis returns the URL of the shared Redis, from which everything that has the topic in its
// key is deleted in Cleanup.
func (m *mailing) sharedRedis(t testing.TB) string {
	t.Helper()
	client := redis.NewClient(testenv.RedisOptions(t))
	t.Cleanup(func() {
		defer client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		keys := client.Scan(ctx, 0, "*"+m.topic+"*", 1000).Iterator()
		for keys.Next(ctx) {
			client.Unlink(ctx, keys.Val())
		}
		client.Unlink(ctx, "idem:born:notification", "idem:scope:notification") // of the notifier's scope
		if err := keys.Err(); err != nil {
			t.Errorf("delete the keys of the test: %v", err)
		}
	})
	return os.Getenv("REDIS_URL")
}

var eventID = regexp.MustCompile(`"event_id":"([^"]+)"`)

// sent returns how often each event was sent by these processes.
func sent(workers []*proc) map[string]int {
	counts := make(map[string]int)
	for _, p := range workers {
		for _, line := range p.stdout.lines(`"event_id":`) {
			if id := eventID.FindStringSubmatch(line); id != nil {
				counts[id[1]]++
			}
		}
	}
	return counts
}

// killThem runs the load through a crew of two that is killed, and returns how many events were
// lost for good and how many sendings were repeats.
func (m *mailing) killThem(t testing.TB, events, kills int, worker func(name string) *proc) (lost, repeats int) {
	t.Helper()
	rng, seed := newSeeded(t)
	began := time.Now()
	load := copies(rng, events, 2, 6)
	portion := len(load)/(kills+2) + 1
	released := make(map[int]bool)
	release := func(int) {
		n := min(portion, len(load))
		m.producer.mustSend(load[:n])
		for _, d := range load[:n] {
			released[d.order] = true
		}
		load = load[n:]
	}
	workers := newCrew(t, []string{"a", "b"}, worker)
	m.kafka.waitMembers(m.group, 2)
	release(0)
	release(0)
	hits := killing{
		crew: workers, rng: rng, kills: kills, between: 40, spread: 30 * time.Millisecond, release: release,
		effects: func(p *proc) int { return len(p.stdout.lines(`"event_id":`)) },
		left:    func() int { return len(released) - len(sent(workers.all)) },
	}.run()
	require.Empty(t, load)
	m.kafka.waitNoLag(m.group, m.topic, time.Minute)
	workers.stop(20 * time.Second)
	counts := sent(workers.all)
	for _, n := range counts {
		repeats += n - 1
	}
	lost = events - len(counts)
	soaked(t, t.Name(), seed, 2*events, kills, 0, 0, fmt.Sprintf("%d lost, %d repeats; %d kills while work was left; %s",
		lost, repeats, hits, time.Since(began).Round(time.Second)))
	return lost, repeats
}

// The negative control: under the same kills the usual worker loses events for good. If this test
// fails, the other ones are no proof.
func TestBlogPostWorkerLosesEvents(t *testing.T) {
	needTime(t)
	m := newMailing(t, newCluster(t, testenv.Kafka(t)), 6)
	url := m.sharedRedis(t)
	lost, _ := m.killThem(t, 3000, 10, func(name string) *proc {
		return blogWorkerProc(t, name, m.kafka.brokers[0], m.topic, m.group, url)
	})
	require.Positive(t, lost, "kills between SETNX and send must lose events, else they hit nothing")
}

// The notifier under the same kills: it loses no event. It repeats at most the events in flight at
// a kill, one in each partition of the worker that died.
func TestKilledNotifierLosesNothing_Idempotent(t *testing.T) {
	needTime(t)
	const events, kills, partitions = 3000, 10, 6
	for _, client := range []string{"sarama", "franz-go"} {
		t.Run(client, func(t *testing.T) {
			m := newMailing(t, newCluster(t, testenv.Kafka(t)), partitions)
			url := m.sharedRedis(t)
			lost, repeats := m.killThem(t, events, kills, func(name string) *proc {
				flags := append(m.notifierFlags(name, url), "-client", client)
				return start(t, name, programs.path(t, "notifier"), nil, flags...)
			})
			require.Zero(t, lost)
			require.LessOrEqual(t, repeats, kills*partitions)
			require.Zero(t, m.kafka.deadLetters(m.group, m.topic))
		})
	}
}

func (m *mailing) notifierFlags(instance, ledger string) []string {
	return []string{"-brokers", m.kafka.brokers[0], "-topic", m.topic, "-group", m.group, "-store", ledger, "-sender", "log",
		"-instance-id", instance, "-lease", "2s"}
}
