package ops

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
)

// running is a consumer on a Kafka in the process, and the page about it.
type running struct {
	*site
	produce func(key, typ, id, value string)
	mended  *atomic.Bool // the handler of "shaky" has been mended
}

// run starts a consumer, and a page that is made of its configuration only.
func run(t *testing.T) *running {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(client.Close)

	mended := &atomic.Bool{}
	failing := func(context.Context, idem.Event[map[string]any]) error {
		if mended.Load() {
			return nil
		}
		return idem.Permanent(errors.New("card declined"))
	}
	router := idem.NewRouter(idem.ID(idem.FromHeader("event_id")), idem.Type(idem.FromHeader("event_type")), idem.Retention(24*time.Hour))
	idem.On(router, "paid", func(context.Context, idem.Event[map[string]any]) error { return nil })
	idem.On(router, "shaky", failing)
	idem.On(router, "refund", failing, idem.Scope("refunds"))
	idem.On(router, "later", func(context.Context, idem.Event[map[string]any]) error {
		return idem.RetryAfter(time.Hour, errors.New("not before tomorrow"))
	}, idem.KeyOrdered(2*time.Hour))
	cfg := consumer.Config{
		Brokers: cluster.ListenAddrs(), Group: "billing", Topics: []string{"orders"}, Store: memstore.New(memstore.Volatile()), CommitInterval: 50 * time.Millisecond,
		CreateDeadLetterTopics: &consumer.TopicSpec{}, Observers: []observe.Observer{NewMonitor()}, Logger: quietConfig().Logger,
		Sarama: func(c *sarama.Config) { c.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond },
	}
	c, err := consumer.New(cfg, router)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	page := quietConfig()
	page.Consumer, page.Scopes, page.Timeout = cfg, []string{"refunds"}, 10*time.Second
	page = page.withDefaults()
	r := &running{site: serve(t, page, newSources(page)), mended: mended}
	r.produce = func(key, typ, id, value string) {
		m := &kgo.Record{Topic: "orders", Key: []byte(key), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "event_type", Value: []byte(typ)}}}
		if id != "" {
			m.Headers = append(m.Headers, kgo.RecordHeader{Key: "event_id", Value: []byte(id)})
		}
		require.NoError(t, client.ProduceSync(ctx, m).FirstErr())
	}
	return r
}

// shows waits until a page shows all of the texts.
func (r *running) shows(path string, texts ...string) {
	r.t.Helper()
	var body string
	require.Eventually(r.t, func() bool {
		body = r.get(path).body
		for _, text := range texts {
			if !strings.Contains(body, text) {
				return false
			}
		}
		return true
	}, 20*time.Second, 100*time.Millisecond, "%s: %v", path, texts)
}

// all are the dead letters that a page lists.
func (r *running) all(path string) (at []string) {
	for _, found := range regexp.MustCompile(`name="at" value="([^"]+)"`).FindAllStringSubmatch(r.get(path).body, -1) {
		at = append(at, found[1])
	}
	return at
}

// On a Kafka, with a store: the page finds the history of events, and a replay lets them run.
func TestPage_OnKafka(t *testing.T) {
	r := run(t)
	for i := range 10 {
		r.produce(fmt.Sprint("c-", i), "paid", fmt.Sprint("p-", i), `{"amount":1}`)
	}
	r.produce("c-0", "paid", "p-0", `{"amount":1}`) // a copy
	r.produce("c-1", "shaky", "s-1", `{"card":"4111"}`)
	r.produce("c-1", "refund", "r-1", `{}`)
	r.produce("c-2", "later", "l-1", `{}`)
	r.produce("c-2", "later", "l-2", `{}`)
	r.produce("c-3", "paid", "", `{}`)
	r.produce("c-4", "shaky", "s-2", `{"v":1}`)
	r.produce("c-4", "shaky", "s-2", `{"v":2}`)

	r.shows("event?id=p-3", "Yes, it was handled", "Written to Kafka")
	r.shows("event?id=s-1", "No. It was given up", "card declined", "Dead letter: permanent", "plan a replay")
	r.shows("event?id=r-1", "No. It was given up", "refunds")
	r.shows("event?id=l-2&type=later&topic=orders", "deferred", "behind &#34;l-1&#34;")
	r.shows("event?id=nobody", "Not known here.", "records of the dead-letter topics")
	r.shows("dead-letters", "5 dead letters", "s-1", "r-1", "no-event-id")
	r.shows("dead-letters?type=refund", "1 dead letter", "r-1")
	r.shows("partitions", "this process", "has caught up", "orders.billing.retry")
	r.shows("deferred", "2 events in 1 queue", `key &#34;c-2&#34;`, "l-1")
	r.shows("activity", `id="duplicate-counter" data-live><b>1</b>`)
	r.shows("claims", "every lease is alive", "No handler runs")
	r.shows("", "5 records in dead-letter topics")

	a := r.post("plan", url.Values{"topic": {"orders.billing.dlq"}, "at": r.all("dead-letters?id=s-2")})
	require.Contains(t, a.body, "other payload", "dead letters of one event that differ are for a person to choose from")
	require.Contains(t, a.body, "No dead letter to replay")
	a = r.post("plan", url.Values{"topic": {"orders.billing.dlq"}, "at": {r.all("dead-letters?id=s-2")[0], r.all("dead-letters?id=s-1")[0]}})
	require.Contains(t, a.body, "other payload", "also if the other one was not ticked")
	require.Contains(t, a.body, "1 dead letter of 2 would be replayed")
	a = r.post("plan", url.Values{"topic": {"orders.billing.dlq"}, "at": r.all("dead-letters?id=s-2")[:1]})
	require.Contains(t, a.body, "1 dead letter of 1 would be replayed", "who chooses one of them has chosen")

	place := func(id string) (at, link string) {
		body := r.get("dead-letters?id=" + id).body
		_, rest, ok := strings.Cut(body, `name="at" value="`)
		require.True(t, ok)
		at, _, _ = strings.Cut(rest, `"`)
		partition, offset, _ := strings.Cut(at, "/")
		return at, "dead-letter?topic=orders.billing.dlq&partition=" + partition + "&offset=" + offset
	}
	at1, link := place("s-1")
	r.shows(link, "Given up: permanent", "&#34;card&#34;: &#34;4111&#34;", "idem-error-class", "c-1")
	at2, _ := place("r-1")

	r.mended.Store(true)
	a = r.post("plan", url.Values{"topic": {"orders.billing.dlq"}, "at": {at1, at2}})
	require.Contains(t, a.body, "2 dead letters of 2 would be replayed", a.body)
	u, err := url.Parse(a.at)
	require.NoError(t, err)
	a = r.post("replay", url.Values{"id": {u.Query().Get("id")}})
	require.Contains(t, a.body, "2 of 2 replayed", a.body)
	r.shows("event?id=s-1", "Yes, it was handled")
	r.shows("event?id=r-1", "Yes, it was handled")
	a = r.post("plan", url.Values{"topic": {"orders.billing.dlq"}, "at": {at1, at2}})
	require.Contains(t, a.body, "already done")
	require.Contains(t, a.body, "No dead letter to replay")
}

// Who follows the link to older dead letters sees all of them: also an old record that failed again,
// after a replay, behind newer ones.
func TestDeadLetters_OlderHasAll_OnKafka(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders", fakeTopic))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	begin := time.Now().Add(-24 * time.Hour)
	const n = 2*shownDeadLetters + 50
	var records []*kgo.Record
	for i := range n {
		id, at := fmt.Sprint("e-", i), begin.Add(time.Duration(i)*time.Minute)
		recorded := at
		if i%3 == 0 {
			recorded = at.Add(-7 * 24 * time.Hour)
		}
		e := deadletter.Event{
			Key: dedup.Key{Scope: "billing", Type: "paid", ID: id}, Group: "billing", Class: idem.ClassFailed,
			Message:      &idem.Message{Topic: "orders", Key: []byte(id), Value: []byte("{}"), Time: recorded},
			FirstFailure: recorded, LastFailure: at, Attempts: 1,
		}
		m := e.DeadLetter(fakeTopic)
		r := &kgo.Record{Topic: m.Topic, Key: m.Key, Value: m.Value, Timestamp: m.Time}
		for _, h := range m.Headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		records = append(records, r)
	}
	require.NoError(t, client.ProduceSync(t.Context(), records...).FirstErr())
	cfg := quietConfig()
	cfg.Consumer = consumer.Config{Brokers: cluster.ListenAddrs(), Group: "billing", Topics: []string{"orders"}}
	cfg.Timeout = 10 * time.Second
	cfg = cfg.withDefaults()
	s := serve(t, cfg, newSources(cfg))
	listed := regexp.MustCompile(`href="\./(event\?id=e-\d+)`)
	older := regexp.MustCompile(`<a href="\./(dead-letters\?[^"]+)">Older ones</a>`)
	seen := map[string]bool{}
	path, pages := "dead-letters", 0
	for ; path != "" && pages < 10; pages++ {
		body := s.get(path).body
		for _, found := range listed.FindAllStringSubmatch(body, -1) {
			seen[found[1]] = true
		}
		path = ""
		if found := older.FindStringSubmatch(body); found != nil {
			path = html.UnescapeString(found[1])
		}
	}
	require.Len(t, seen, n)
	require.Equal(t, 3, pages)
}

// The page does not wait for a Kafka that is away, and shows the data of the store.
func TestPage_KafkaAway(t *testing.T) {
	store := memstore.New(memstore.Volatile())
	_, err := store.Import(t.Context(), []dedup.Imported{{Key: dedup.Key{Scope: "billing", Type: "paid", ID: "p-1"}, Retention: time.Hour}})
	require.NoError(t, err)
	cfg := quietConfig()
	cfg.Consumer = consumer.Config{Brokers: []string{"127.0.0.1:1"}, Group: "billing", Topics: []string{"orders"}, Store: store}
	cfg.Timeout = time.Second
	cfg = cfg.withDefaults()
	s := serve(t, cfg, newSources(cfg))
	body := s.get("event?id=p-1").body
	require.Contains(t, body, "Yes, it was handled")
	require.Contains(t, body, "This could not be looked at")
	require.Contains(t, s.get("partitions").body, "This could not be looked at")
	require.Contains(t, s.get("dead-letters").body, "This could not be looked at")
	body = s.get("").body
	require.Contains(t, body, "Not everything could be looked at")
	require.NotContains(t, body, "Nothing needs attention")
}

func TestDeadLetterSource_Source(t *testing.T) {
	l := &deadLetterSource{cfg: Config{Consumer: consumer.Config{Group: "billing", Topics: []string{"orders", "refunds"}}}}
	require.Equal(t, "orders", l.source("orders.billing.dlq"))
	require.Equal(t, "old", l.source("old.billing.dlq"))
	require.Empty(t, l.source("anything"))
	l.cfg.Consumer.DeadLetterTopic = func(string) string { return "dead" }
	require.Empty(t, l.source("dead"), "of several topics")
	l.cfg.Consumer.Topics = []string{"orders"}
	require.Equal(t, "orders", l.source("dead"))
}
