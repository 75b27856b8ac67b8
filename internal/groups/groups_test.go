package groups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/internal/testenv"
)

// place is a Kafka in this process, with one client that lives as long as the test.
type place struct {
	*testing.T
	cluster *kfake.Cluster
	client  sarama.Client
	admin   sarama.ClusterAdmin // with its own client
	asked   map[int16]*atomic.Int64
}

func newPlace(t *testing.T, brokers int, topics ...string) *place {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(brokers), kfake.SeedTopics(4, topics...),
		kfake.AllowAutoTopicCreation())
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	p := &place{T: t, cluster: cluster, asked: map[int16]*atomic.Int64{}}
	p.client = p.connect()
	p.admin = testenv.KafkaAdmin(t, cluster.ListenAddrs())
	for _, key := range []kmsg.Key{kmsg.ListOffsets, kmsg.OffsetFetch, kmsg.DescribeGroups,
		kmsg.Metadata} {
		n := &atomic.Int64{}
		p.asked[int16(key)] = n
		cluster.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			n.Add(1)
			return nil, nil, false
		})
	}
	return p
}

func (p *place) connect() sarama.Client {
	p.Helper()
	cfg := testenv.KafkaConfig()
	cfg.Metadata.RefreshFrequency = 0 // only explicit requests refresh the metadata
	cfg.Metadata.Retry.Max = 1
	cfg.Metadata.AllowAutoTopicCreation = true // sarama's default
	client, err := sarama.NewClient(p.cluster.ListenAddrs(), cfg)
	require.NoError(p, err)
	p.Cleanup(func() { _ = client.Close() })
	return client
}

func (p *place) reader() *Reader {
	r := NewReader(p.client)
	p.Cleanup(r.Close)
	return r
}

func (p *place) create(topic string, partitions int32) {
	p.Helper()
	require.NoError(p, p.admin.CreateTopic(topic,
		&sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false))
}

// produce writes n records to each of some partitions.
func (p *place) produce(topic string, n int, partitions ...int32) {
	p.Helper()
	cfg := testenv.KafkaConfig()
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	producer, err := sarama.NewSyncProducer(p.cluster.ListenAddrs(), cfg)
	require.NoError(p, err)
	defer producer.Close()
	for _, id := range partitions {
		for i := range n {
			_, _, err := producer.SendMessage(&sarama.ProducerMessage{
				Topic: topic, Partition: id, Value: sarama.StringEncoder(fmt.Sprint(i)),
			})
			require.NoError(p, err)
		}
	}
}

func (p *place) commit(group, topic string, offsets map[int32]int64) {
	p.Helper()
	of := map[int32]sarama.OffsetAndMetadata{}
	for id, offset := range offsets {
		of[id] = sarama.OffsetAndMetadata{Offset: offset, LeaderEpoch: -1}
	}
	_, err := p.admin.AlterConsumerGroupOffsets(group,
		map[string]map[int32]sarama.OffsetAndMetadata{topic: of}, nil)
	require.NoError(p, err)
}

func lagOf(t *testing.T, r *Reader, q Query) State {
	t.Helper()
	s, err := r.Lag(t.Context(), q)
	require.NoError(t, err)
	for _, p := range s.Partitions {
		require.NoError(t, p.Err, "%+v", p)
	}
	return s
}

// lags returns the lags by kind, topic and partition, without zeros.
func lags(s State) map[string]int64 {
	all := map[string]int64{}
	for _, p := range s.Partitions {
		if p.Lag != 0 {
			all[fmt.Sprintf("%s %s/%d", p.Kind, p.Topic, p.Partition)] = p.Lag
		}
	}
	return all
}

// A report has the group's retry and dead-letter topics, and topics without a committed offset, but
// no topics of other groups.
func TestLag(t *testing.T) {
	p := newPlace(t, 1, "orders", "orders.g.dlq", "orders.g.retry", "orders.g.retry.5s",
		"orders.other.dlq", "new", "elsewhere", "dead-letters-of-new")
	p.produce("orders", 10, 0, 1, 2)
	p.produce("orders.g.dlq", 2, 3)
	p.produce("orders.other.dlq", 2, 3)
	p.produce("orders.g.retry.5s", 1, 0)
	p.produce("new", 3, 1)
	p.produce("dead-letters-of-new", 1, 0)
	p.commit("g", "orders", map[int32]int64{0: 4, 1: 10, 2: 7})
	p.commit("g", "orders.g.dlq", map[int32]int64{3: 2}) // by another tool
	require.NoError(t, p.admin.DeleteRecords("orders", map[int32]int64{0: 6}))
	letters := func(topic string) string {
		if topic == "new" {
			return "dead-letters-of-new"
		}
		return topic + ".g.dlq"
	}
	s := lagOf(t, p.reader(),
		Query{Group: "g", Topics: []string{"new", "nowhere"}, DeadLetterTopic: letters})
	require.Equal(t, map[string]int64{
		"source orders/0": 6, "source orders/2": 3, "dead-letters orders.g.dlq/3": 2,
		"retry orders.g.retry.5s/0": 1, "source new/1": 3, "dead-letters dead-letters-of-new/0": 1,
	}, lags(s))
	require.Len(t, s.Partitions, 6*4)
	require.Equal(t, []string{"nowhere"}, s.Missing)
	require.NoError(t, s.MembersErr)
	require.Empty(t, s.Members)
	for _, p := range s.Partitions {
		switch fmt.Sprintf("%s/%d", p.Topic, p.Partition) {
		case "orders/0":
			require.Equal(t, []int64{4, 6, 6, 10}, []int64{*p.Committed, p.Begin, p.Next, p.End})
		case "orders/2":
			require.Equal(t, []int64{7, 0, 7, 10}, []int64{*p.Committed, p.Begin, p.Next, p.End})
		case "new/1":
			require.Nil(t, p.Committed)
			require.Equal(t, []int64{0, 0, 3}, []int64{p.Begin, p.Next, p.End})
		case "orders.g.dlq/3":
			require.Nil(t, p.Committed, "no group consumes dead letters")
		}
	}
	topics, err := p.admin.ListTopics()
	require.NoError(t, err)
	require.NotContains(t, topics, "nowhere", "to ask for a topic creates none (K-36)")
}

// A committed offset beyond the end is no sign that the group has caught up.
func TestPartition_K28(t *testing.T) {
	refused := errors.New("refused")
	at := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		log       Log
		kind      Kind
		committed *int64
		want      Partition
	}{
		"in the log": {Log{Begin: 100, End: 200}, Source, at(150), Partition{Next: 150, Lag: 50}},
		"caught up":  {Log{Begin: 100, End: 200}, Source, at(200), Partition{Next: 200}},
		"before the log": {
			Log{Begin: 100, End: 200}, Source, at(40), Partition{Next: 100, Lag: 160},
		},
		"beyond the end": {
			Log{Begin: 100, End: 200}, Source, at(1000),
			Partition{Next: 100, Lag: 100, Beyond: true},
		},
		"one beyond the end": {
			Log{Begin: 100, End: 200}, Retry, at(201),
			Partition{Next: 100, Lag: 100, Beyond: true},
		},
		"beyond an empty log": {Log{}, Source, at(1000), Partition{Beyond: true}},
		"without an offset":   {Log{Begin: 100, End: 200}, Source, nil, Partition{Next: 100, Lag: 100}},
		"dead letters": {
			Log{Begin: 100, End: 200}, DeadLetters, at(1000), Partition{Next: 100, Lag: 100},
		},
		"not known": {Log{Err: refused}, Source, at(1000), Partition{Err: refused}},
	} {
		t.Run(name, func(t *testing.T) {
			c.log.Topic, c.log.Partition = "orders", 1
			committed := map[string]map[int32]int64{}
			if c.committed != nil {
				committed["orders"] = map[int32]int64{1: *c.committed}
			}
			c.want.Topic, c.want.Partition, c.want.Kind = "orders", 1, c.kind
			c.want.Begin, c.want.End = c.log.Begin, c.log.End
			if c.kind != DeadLetters {
				c.want.Committed = c.committed
			}
			require.Equal(t, c.want, partition(c.log, c.kind, committed, nil))
		})
	}
}

// Each broker gets two requests, and the coordinator two, for any number of partitions.
func TestLag_IsAskedInBatches(t *testing.T) {
	p := newPlace(t, 3)
	for _, topic := range []string{"orders", "orders.g.dlq", "payments"} {
		p.create(topic, 30)
	}
	p.commit("g", "orders", map[int32]int64{0: 0})
	p.commit("g", "payments", map[int32]int64{0: 0})
	r := p.reader()
	lagOf(t, r, Query{Group: "g"})
	for _, n := range p.asked {
		n.Store(0)
	}
	s := lagOf(t, r, Query{Group: "g"})
	require.Len(t, s.Partitions, 90)
	require.LessOrEqual(t, p.asked[int16(kmsg.ListOffsets)].Load(), int64(2*3))
	require.EqualValues(t, 1, p.asked[int16(kmsg.OffsetFetch)].Load())
	require.EqualValues(t, 1, p.asked[int16(kmsg.DescribeGroups)].Load())
	require.Zero(t, p.asked[int16(kmsg.Metadata)].Load(), "the list of topics is fresh")
}

// A long-lived client has an old list of topics, without new ones and with deleted ones.
func TestLag_TopicsComeAndGo(t *testing.T) {
	p := newPlace(t, 1, "orders")
	p.produce("orders", 1, 0)
	p.commit("g", "orders", map[int32]int64{0: 0})
	r := p.reader()
	require.Equal(t, map[string]int64{"source orders/0": 1}, lags(lagOf(t, r, Query{Group: "g"})))
	p.create("orders.g.dlq", 1)
	p.produce("orders.g.dlq", 5, 0)
	require.Equal(t, map[string]int64{"source orders/0": 1}, lags(lagOf(t, r, Query{Group: "g"})),
		"the list is fresh")
	r.listed = time.Now().Add(-fresh - time.Second)
	require.Equal(t, map[string]int64{"source orders/0": 1, "dead-letters orders.g.dlq/0": 5},
		lags(lagOf(t, r, Query{Group: "g"})))

	// A topic in the query is known at once.
	p.create("payments", 2)
	p.produce("payments", 2, 1)
	s := lagOf(t, r, Query{Group: "g", Topics: []string{"payments"}})
	require.EqualValues(t, 2, lags(s)["source payments/1"])
	require.Empty(t, s.Missing)

	require.NoError(t, p.admin.DeleteTopic("orders.g.dlq"))
	s = lagOf(t, r, Query{Group: "g"})
	require.Equal(t, map[string]int64{"source orders/0": 1}, lags(s))
}

// After a leader or a coordinator moved, the client asks for them again.
func TestLag_LeadersMove(t *testing.T) {
	p := newPlace(t, 3, "orders")
	p.produce("orders", 3, 0, 1, 2, 3)
	p.commit("g", "orders", map[int32]int64{0: 1})
	r := p.reader()
	want := lags(lagOf(t, r, Query{Group: "g"}))
	for range 3 {
		for id := range int32(4) {
			leader, err := p.client.Leader("orders", id)
			require.NoError(t, err)
			require.NoError(t, p.cluster.MoveTopicPartition("orders", id, (leader.ID()+1)%3))
		}
		p.cluster.RehashCoordinators()
		require.Equal(t, want, lags(lagOf(t, r, Query{Group: "g"})))
	}
}

// A connection that breaks during any request is opened again, as after a restart of a broker.
func TestLag_ConnectionsBreak(t *testing.T) {
	p := newPlace(t, 1, "orders")
	p.produce("orders", 3, 0)
	p.commit("g", "orders", map[int32]int64{0: 1})
	r := p.reader()
	want := lags(lagOf(t, r, Query{Group: "g"}))
	for _, key := range []kmsg.Key{kmsg.ListOffsets, kmsg.OffsetFetch, kmsg.DescribeGroups,
		kmsg.FindCoordinator} {
		for range 2 {
			// Fails once.
			p.cluster.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
				return nil, errors.New("gone"), true
			})
			s := lagOf(t, r, Query{Group: "g"})
			require.Equal(t, want, lags(s), "%s", key.Name())
			require.NoError(t, s.MembersErr, key.Name())
		}
	}
}

// After the coordinator's broker is gone for good, its successor is found.
func TestLag_BrokerGoes(t *testing.T) {
	p := newPlace(t, 3, "orders")
	p.produce("orders", 3, 0)
	controller, err := p.client.Controller() // the fake cannot lose this one
	require.NoError(t, err)
	group := "g"
	for p.cluster.CoordinatorFor(group) == controller.ID() {
		group += "g"
	}
	p.commit(group, "orders", map[int32]int64{0: 1})
	r := p.reader()
	want := map[string]int64{"source orders/0": 2}
	require.Equal(t, want, lags(lagOf(t, r, Query{Group: group})))
	coordinator, err := p.client.Coordinator(group)
	require.NoError(t, err)
	require.NoError(t, p.cluster.RemoveNode(coordinator.ID()))
	_ = coordinator.Close() // its process is gone
	s := lagOf(t, r, Query{Group: group, Topics: []string{"orders"}})
	require.NoError(t, s.MembersErr)
	require.Len(t, s.Partitions, 4)
}

// A refused request is reported in its place, and the rest of the report is complete (rule 46).
func TestLag_Rights(t *testing.T) {
	p := newPlace(t, 1, "orders", "payments")
	p.commit("g", "orders", map[int32]int64{0: 0})
	refuse := func(key kmsg.Key, answer func(kmsg.Request) kmsg.Response) {
		p.cluster.ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
			p.cluster.KeepControl()
			resp := answer(req)
			return resp, nil, resp != nil
		})
	}
	refuse(kmsg.DescribeGroups, func(req kmsg.Request) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		one := kmsg.NewDescribeGroupsResponseGroup()
		one.Group, one.ErrorCode = "g", kerr.GroupAuthorizationFailed.Code
		resp.Groups = append(resp.Groups, one)
		return resp
	})
	refuse(kmsg.Metadata, func(req kmsg.Request) kmsg.Response {
		if len(req.(*kmsg.MetadataRequest).Topics) == 0 {
			return nil
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for _, asked := range req.(*kmsg.MetadataRequest).Topics {
			one := kmsg.NewMetadataResponseTopic()
			one.Topic, one.ErrorCode = asked.Topic, kerr.TopicAuthorizationFailed.Code
			resp.Topics = append(resp.Topics, one)
		}
		return resp
	})
	s, err := p.reader().Lag(t.Context(), Query{Group: "g", Topics: []string{"secret"}})
	require.NoError(t, err)
	require.ErrorIs(t, s.MembersErr, sarama.ErrGroupAuthorizationFailed)
	require.ErrorContains(t, s.MembersErr, "grant Describe")
	hidden := map[string]Kind{}
	for _, p := range s.Partitions {
		if p.Topic == "orders" {
			require.NoError(t, p.Err)
			continue
		}
		hidden[p.Topic] = p.Kind
		require.EqualValues(t, -1, p.Partition)
		require.ErrorIs(t, p.Err, sarama.ErrTopicAuthorizationFailed)
	}
	require.Equal(t, map[string]Kind{
		"secret": Source, "orders.g.dlq": DeadLetters, "secret.g.dlq": DeadLetters,
	}, hidden)
	require.Empty(t, s.Missing)
}

// A dead-letter topic that the list of topics does not have is asked for by name, once for each
// list: it does not exist, or this user may not describe it. Retry topics have no dead letters.
func TestLag_HiddenDeadLetters(t *testing.T) {
	p := newPlace(t, 1, "orders", "payments", "orders.g.retry")
	p.commit("g", "orders", map[int32]int64{0: 0})
	var asked []string
	p.cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		p.cluster.KeepControl()
		topics := req.(*kmsg.MetadataRequest).Topics
		if len(topics) == 0 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for _, topic := range topics {
			one := kmsg.NewMetadataResponseTopic()
			one.Topic, one.ErrorCode = topic.Topic, kerr.UnknownTopicOrPartition.Code
			if *topic.Topic == "orders.g.dlq" {
				one.ErrorCode = kerr.TopicAuthorizationFailed.Code
			}
			asked = append(asked, *topic.Topic)
			resp.Topics = append(resp.Topics, one)
		}
		return resp, nil, true
	})
	r := p.reader()
	for range 2 {
		s, err := r.Lag(t.Context(), Query{Group: "g", Topics: []string{"payments"}})
		require.NoError(t, err)
		require.Empty(t, s.Missing, "a dead-letter topic need not exist")
		at := slices.IndexFunc(s.Partitions, func(p Partition) bool { return p.Err != nil })
		require.GreaterOrEqual(t, at, 0, "the dead letters of orders count as known")
		hidden := s.Partitions[at]
		require.Equal(t, "orders.g.dlq", hidden.Topic)
		require.Equal(t, DeadLetters, hidden.Kind)
		require.ErrorIs(t, hidden.Err, sarama.ErrTopicAuthorizationFailed)
		require.Len(t, s.Partitions, 3*4+1)
	}
	require.Equal(t, []string{"orders.g.dlq", "payments.g.dlq", "orders.g.dlq"}, asked)
}

// A call ends with its context while the broker is silent; the next call waits for the request, and
// Close for both.
func TestReader_BoundedByContext(t *testing.T) {
	p := newPlace(t, 1, "orders")
	r := NewReader(p.client)
	silent, released := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p.cluster.ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		p.cluster.KeepControl()
		p.cluster.SleepControl(func() { once.Do(func() { close(silent); <-released }) })
		return nil, nil, false
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := r.Lag(ctx, Query{Group: "g"})
		gone <- err
	}()
	<-silent
	cancel(errors.New("the browser has gone"))
	require.ErrorContains(t, <-gone, "the browser has gone")
	ended, cancel2 := context.WithCancel(t.Context())
	cancel2()
	_, err := r.Groups(ended)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, r.slot, 1, "it still waits for the broker")
	waits, cancel3 := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel3()
	_, err = r.Groups(waits)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(released)
	_, err = r.Lag(t.Context(), Query{Group: "g", Topics: []string{"orders"}})
	require.NoError(t, err)
	r.Close()
	require.Empty(t, r.slot)
}

// Concurrent calls are safe.
func TestReader_Concurrent(t *testing.T) {
	p := newPlace(t, 1, "orders")
	p.commit("g", "orders", map[int32]int64{0: 0})
	r := p.reader()
	var all sync.WaitGroup
	errs := make(chan error, 20)
	for range 10 {
		all.Go(func() {
			_, err := r.Lag(t.Context(), Query{Group: "g"})
			errs <- err
			_, err = r.Groups(t.Context())
			errs <- err
		})
	}
	all.Wait()
	for range 20 {
		require.NoError(t, <-errs)
	}
}

// A real Kafka answers like the fake of these tests.
func TestLag_OnKafka(t *testing.T) {
	brokers := testenv.Kafka(t)
	topic := testenv.CreateTopic(t, brokers, 3)
	client, err := sarama.NewClient(brokers, testenv.KafkaConfig())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	r := NewReader(client)
	t.Cleanup(r.Close)
	admin := testenv.KafkaAdmin(t, brokers)
	group := topic + "-g"
	s := lagOf(t, r, Query{Group: group, Topics: []string{topic}})
	require.Len(t, s.Partitions, 3)
	require.Nil(t, s.Partitions[0].Committed)
	_, err = admin.AlterConsumerGroupOffsets(group, map[string]map[int32]sarama.OffsetAndMetadata{
		topic: {1: {Offset: 0, LeaderEpoch: -1}},
	}, nil)
	require.NoError(t, err)
	letters := topic + "." + group + ".dlq"
	require.NoError(t, admin.CreateTopic(letters,
		&sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	t.Cleanup(func() { _ = admin.DeleteTopic(letters) })
	require.Eventually(t, func() bool {
		r.listed = time.Time{}
		s := lagOf(t, r, Query{Group: group})
		return len(s.Partitions) == 4 && s.Partitions[3].Kind == DeadLetters &&
			s.Partitions[1].Committed != nil
	}, 20*time.Second, 100*time.Millisecond)
	names, err := r.Groups(t.Context())
	require.NoError(t, err)
	require.Contains(t, names, group)
	require.True(t, strings.HasSuffix(letters, ".dlq"))
}
