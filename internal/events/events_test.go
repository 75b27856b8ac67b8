package events

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/internal/deadletters"
)

func key(typ, id string) dedup.Key { return dedup.Key{Scope: "billing", Type: typ, ID: id} }

// finish handles an event, or gives it up for a reason.
func finish(t *testing.T, s dedup.Store, k dedup.Key, reason string) {
	t.Helper()
	reqs := []dedup.Request{{Key: k, Origin: dedup.Origin{Topic: "orders", Partition: 2, Offset: 7, Time: time.Now()}, Retention: time.Hour}}
	var answers [1]dedup.Answer
	token := dedup.NewToken()
	require.NoError(t, s.Claim(t.Context(), token, time.Minute, reqs, answers[:]))
	c := reqs[0].Held(token, answers[0])
	require.NoError(t, s.Complete(t.Context(), []dedup.Completion{{Claim: c, Retention: time.Hour, Dead: reason}}))
}

func fakeStore(name string, s dedup.Store) deadletters.NamedStore {
	return deadletters.NamedStore{Name: name, Store: s}
}

// An event is found in every store, of every type and tenant that was not ruled out.
func TestFind(t *testing.T) {
	one, two := memstore.New(memstore.Volatile()), memstore.New(memstore.Volatile())
	finish(t, one, key("order", "1"), "")
	finish(t, one, key("payment", "1"), "broken")
	tenant := key("order", "1")
	tenant.Tenant = "acme"
	finish(t, two, tenant, "")
	ledgers := []deadletters.NamedStore{fakeStore("one", one), fakeStore("two", two)}
	find := func(q Query) (found []string) {
		q.Scope = "billing"
		all, err := Find(t.Context(), ledgers, q)
		require.NoError(t, err)
		for _, e := range all {
			require.Len(t, e.Records, 1)
			require.Equal(t, e.Key, e.Records[0].Key)
			for _, v := range e.Views() {
				found = append(found, strings.Join([]string{v.Store, v.Tenant, v.Type, v.State}, " "))
				require.NotEmpty(t, v.Next)
				require.Equal(t, "orders", v.Origin.Topic)
			}
		}
		return found
	}
	require.Equal(t, []string{"one  order done", "one  payment dead", "two acme order done"}, find(Query{ID: "1"}))
	require.Equal(t, []string{"one  order done"}, find(Query{ID: "1", Type: "order"}))
	require.Equal(t, []string{"two acme order done"}, find(Query{ID: "1", Tenant: "acme"}))
	require.Empty(t, find(Query{ID: "2"}))
	require.Contains(t, NotKnown(key("order", "2"), "type or tenant"), `event "2" is not known in scope "billing" with type "order"`)

	for _, id := range []string{"", strings.Repeat("x", dedup.MaxPart+1), "a\x00b"} {
		_, err := Find(t.Context(), ledgers, Query{Scope: "billing", ID: id})
		require.ErrorIs(t, err, dedup.ErrKey)
		_, err = DeadLetters(t.Context(), nil, "g", Query{ID: id})
		require.ErrorIs(t, err, dedup.ErrKey)
	}
	id, err := CloudEventID("/shop", "7")
	require.NoError(t, err)
	require.NotEqual(t, "7", id)
}

type bare struct {
	dedup.Store
	dedup.Operator
}

type typed struct {
	bare
	types []string
	err   error
}

func (s *typed) Types(context.Context, string) ([]string, error) { return s.types, s.err }

// A copy that differs is shown with its event. With a store that notes no copies it is not known
// whether there are any.
func TestConflicts(t *testing.T) {
	s := memstore.New(memstore.Volatile())
	reqs := []dedup.Request{{Key: key("order", "1"), Retention: time.Hour, Fingerprint: dedup.Checksum([]byte("a"))}}
	require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, reqs, make([]dedup.Answer, 1)))
	finish(t, s, key("order", "2"), "")
	view := func(store dedup.Store, id string) (*View, string) {
		all, err := Find(t.Context(), []deadletters.NamedStore{fakeStore("one", store)}, Query{Scope: "billing", Type: "order", ID: id})
		require.NoError(t, err)
		require.Len(t, all, 1)
		v := all[0].Views()[0]
		text, err := json.Marshal(v)
		require.NoError(t, err)
		return &v, string(text)
	}
	v, text := view(s, "1")
	require.Contains(t, text, `"compared":"checksum","conflicts":[]`)
	require.Equal(t, "compared by checksum, no copy that differs was noted in the last day", v.ContentText())
	v, text = view(&bare{s, s}, "1")
	require.Contains(t, text, `"compared":"checksum"`)
	require.NotContains(t, text, `"conflicts"`)
	require.Equal(t, "compared by checksum", v.ContentText())
	v, text = view(s, "2")
	require.Contains(t, text, `"compared":"not compared"`)
	require.Equal(t, "not compared", v.ContentText())

	for i := range int64(MaxConflicts) {
		require.NoError(t, s.NoteConflict(t.Context(), key("order", "1"), dedup.Origin{Topic: "orders", Partition: 2, Offset: i}))
		if i == 1 {
			v, text = view(s, "1")
			require.Contains(t, text, `"conflicts":[{"topic":"orders","partition":2,"offset":0},{"topic":"orders","partition":2,"offset":1}]`)
			require.Equal(t, "compared by checksum, copies that differ: orders/2 offset 0, orders/2 offset 1", v.ContentText())
		}
	}
	v, _ = view(s, "1")
	require.Contains(t, v.ContentText(), "offset 19, and maybe more")
}

// A store that cannot be searched wants a type, or takes those that the scope has registered.
func TestFindWithoutAType(t *testing.T) {
	s := memstore.New(memstore.Volatile())
	finish(t, s, key("order", "1"), "")
	q := Query{Scope: "billing", ID: "1"}
	for name, store := range map[string]dedup.Store{"bare": &bare{s, s}, "none": &typed{bare{s, s}, nil, nil}, "many": &typed{bare{s, s}, make([]string, maxTypes+1), nil}} {
		_, err := Find(t.Context(), []deadletters.NamedStore{fakeStore(name, store)}, q)
		require.ErrorIs(t, err, ErrWhichType, name)
	}
	_, err := Find(t.Context(), []deadletters.NamedStore{fakeStore("away", &typed{bare{s, s}, nil, dedup.ErrUnavailable})}, q)
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.NotErrorIs(t, err, ErrWhichType)
	all, err := Find(t.Context(), []deadletters.NamedStore{fakeStore("typed", &typed{bare{s, s}, []string{"invoice", "order"}, nil})}, q)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, key("order", "1"), all[0].Key)
}

// A deferred event is found by the topic of its record, and without a record by the named topic
// (rule 4).
func TestFindDeferred(t *testing.T) {
	s := memstore.New(memstore.Volatile())
	finish(t, s, key("order", "head"), "broken")
	part := dedup.DeferredPartition{Scope: "billing", Topic: "orders", Partition: 2}
	var deferred []dedup.Deferred
	for _, id := range []string{"head", "second", "third"} {
		deferred = append(deferred, dedup.Deferred{Key: key("order", id), Queue: "kcustomer", Origin: dedup.Origin{Topic: "orders", Offset: 1}, Data: []byte("{}")})
	}
	require.NoError(t, s.Defer(t.Context(), part, deferred))
	deferred[0].Blocked = true
	_, err := s.Postpone(t.Context(), part, deferred[0])
	require.NoError(t, err)
	ledgers := []deadletters.NamedStore{fakeStore("memory", s)}
	one := func(q Query) *Event {
		q.Scope = "billing"
		all, err := Find(t.Context(), ledgers, q)
		require.NoError(t, err)
		require.Len(t, all, 1)
		return all[0]
	}
	head := one(Query{ID: "head"})
	require.True(t, head.Deferred.IsHead())
	require.Equal(t, 2, head.Deferred.Behind)
	require.Contains(t, head.Views()[0].Next, "a person")
	third := one(Query{ID: "third", Type: "order", Topic: "orders"})
	require.Empty(t, third.Records)
	require.Len(t, third.Views(), 1)
	require.Equal(t, &DeferredView{Topic: "orders", Partition: 2, Queue: "kcustomer", HeadID: "head", Blocked: true, Others: 2}, third.Views()[0].Deferred)

	require.NoError(t, head.TakeOut(t.Context()))
	require.True(t, one(Query{ID: "second", Type: "order", Topic: "orders"}).Deferred.IsHead())
}

// A producer that counts in microseconds writes times beyond the year 9999, which JSON does not have.
// The rest of the answer is readable.
func TestTimesBeyondTheYear9999(t *testing.T) {
	far := time.UnixMilli(1.7e15)
	at := dedup.Origin{Topic: "orders", Offset: 7, Time: far}
	e := &Event{Store: &deadletters.NamedStore{}, Key: key("order", "1"), Conflicts: []dedup.Origin{at}}
	letter := &deadletters.Found{Record: &idem.Message{Time: far}, DeadLetter: &deadletter.Event{
		Message: &idem.Message{Topic: "orders", Offset: 7, Time: far}, FirstFailure: far, LastFailure: far,
	}}
	text, err := json.Marshal([]any{
		e.View(dedup.Record{Key: e.Key, State: dedup.Finished, First: at, Created: far, Changed: far, Expires: far}),
		deadLetterOf(letter),
	})
	require.NoError(t, err)
	require.Contains(t, string(text), `"origin":{"topic":"orders","partition":0,"offset":7}`)
}

// The dead letters of an event are found in all dead-letter topics of the group, those that came
// later too.
func TestDeadLetters(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders.g.dlq", "orders.other.dlq"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	cfg, err := consumer.DefaultSaramaConfig(consumer.Config{Brokers: cluster.ListenAddrs(), Group: "g", Topics: []string{"orders"}})
	require.NoError(t, err)
	client, err := sarama.NewClient(cluster.ListenAddrs(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	admin, err := sarama.NewClusterAdmin(cluster.ListenAddrs(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	require.NoError(t, admin.CreateTopic("users.g.dlq", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	producer, err := consumer.NewProducer(client)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, producer.Close()) })
	write := func(topic, id, tenant string) {
		m := &idem.Message{Topic: topic, Value: []byte("{}"), Time: time.Now()}
		for _, h := range [][2]string{
			{deadletter.HeaderTopic, strings.Split(topic, ".")[0]}, {deadletter.HeaderPartition, "0"}, {deadletter.HeaderOffset, "7"},
			{deadletter.HeaderTime, time.Now().UTC().Format(time.RFC3339)}, {deadletter.HeaderGroup, "g"}, {deadletter.HeaderScope, "billing"},
			{deadletter.HeaderEventType, "order"}, {deadletter.HeaderEventID, id}, {deadletter.HeaderTenant, tenant}, {deadletter.HeaderAttempts, "1"}, {deadletter.HeaderErrorClass, "failed"},
		} {
			if h[1] != "" {
				m.Headers = append(m.Headers, idem.Header{Key: h[0], Value: []byte(h[1])})
			}
		}
		require.NoError(t, producer.Produce(t.Context(), m))
	}
	write("orders.g.dlq", "1", "")
	write("orders.g.dlq", "2", "")
	write("users.g.dlq", "1", "acme")
	write("orders.other.dlq", "1", "")

	q := Query{Scope: "billing", ID: "1"}
	l, err := DeadLetters(t.Context(), client, "g", q)
	require.NoError(t, err)
	require.Equal(t, []string{"orders.g.dlq", "users.g.dlq"}, l.Topics)
	require.Equal(t, 3, l.Scanned)
	require.Len(t, l.DeadLetters, 2)
	require.Equal(t, "orders", l.DeadLetters[0].Origin.Topic)
	require.False(t, l.DeadLetters[0].Written.IsZero())
	for _, narrow := range []Query{{Scope: "billing", ID: "1", Tenant: "acme"}, {Scope: "billing", ID: "1", Topic: "users"}} {
		l, err = DeadLetters(t.Context(), client, "g", narrow)
		require.NoError(t, err)
		require.Len(t, l.DeadLetters, 1)
		require.Equal(t, "users.g.dlq", l.DeadLetters[0].Topic)
	}
	none, err := DeadLetters(t.Context(), client, "g", Query{Scope: "billing", ID: "1", Topic: "nowhere"})
	require.NoError(t, err, "a topic without dead letters")
	all, err := DeadLetters(t.Context(), client, "nobody", q)
	require.NoError(t, err)
	require.Equal(t, all, none, "as without a topic")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l, err = DeadLetters(ctx, client, "g", q)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, l.Topics, 2, "what was found so far")
}
