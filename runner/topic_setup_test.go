package runner

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/setupwait"
	"github.com/idem-go/idem/observe"
)

// fakeAdmin is a cluster with topics. created has the new topics with their settings.
type fakeAdmin struct {
	mu            sync.Mutex // of topics and looks
	topics        map[string]TopicInfo
	looks         int                  // calls of Topics
	ghosts        map[string]int       // deleted topics: so many answers still have them
	hidden        map[string]int       // new topics: so many answers do not have them yet
	deleting      map[string]time.Time // until then, a new topic of that name is refused
	asked         map[string]int       // calls of CreateTopic
	created       map[string]map[string]string
	changed       map[string]map[string]string
	denied        map[string]error // of CreateTopic
	groupErr, err error
}

func newFakeAdmin(topics ...string) *fakeAdmin {
	f := &fakeAdmin{
		topics: map[string]TopicInfo{}, created: map[string]map[string]string{},
		changed: map[string]map[string]string{}, denied: map[string]error{},
		ghosts: map[string]int{}, hidden: map[string]int{}, deleting: map[string]time.Time{}, asked: map[string]int{},
	}
	for _, name := range topics {
		f.put(name, OpDescribe|OpRead|OpWrite)
	}
	return f
}

func (f *fakeAdmin) put(name string, ops Operations) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.topics[name] = TopicInfo{Name: name, Exists: true, Partitions: []int32{0, 1, 2}, Replicas: 3, Operations: ops}
}

func (f *fakeAdmin) Topics(_ context.Context, names []string) (all []TopicInfo, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	if names == nil {
		names = slices.Collect(maps.Keys(f.topics))
	}
	for _, name := range names {
		info := f.topics[name]
		if f.ghosts[name] > 0 {
			f.ghosts[name]--
			info = TopicInfo{Exists: true, Partitions: []int32{0, 1, 2}, Replicas: 3}
		} else if info.Exists && f.hidden[name] > 0 {
			f.hidden[name]--
			info = TopicInfo{}
		}
		info.Name = name
		all = append(all, info)
	}
	return all, f.err
}

func (f *fakeAdmin) CreateTopic(_ context.Context, name string, partitions int32, replicas int16, settings map[string]string) (bool, error) {
	if err := f.denied[name]; err != nil {
		return false, err
	}
	if partitions != 3 || replicas != 3 {
		return false, errors.New("not like its source")
	}
	f.asked[name]++
	if time.Now().Before(f.deleting[name]) {
		return false, nil
	}
	f.put(name, OpDescribe|OpRead|OpWrite)
	f.created[name] = settings
	return true, nil
}

func (f *fakeAdmin) TopicSettings(_ context.Context, topic string, _ ...string) (map[string]string, error) {
	return map[string]string{"retention.ms": "60000", "cleanup.policy": "delete"}, nil
}

func (f *fakeAdmin) ChangeTopic(_ context.Context, topic string, settings map[string]string) error {
	f.changed[topic] = settings
	return nil
}

func (f *fakeAdmin) CheckGroup(context.Context, string) error { return f.groupErr }

// TestTopicSetup_K36: the topics that are created, and the errors that end a start.
func TestTopicSetup_K36(t *testing.T) {
	const dlq, replays, retry = "t.g.dlq", "t.g.retry", "t.g.retry.1m"
	errTopic := errors.New("no right on the topic")
	setUp := func(t *testing.T, admin *fakeAdmin, create bool, logged *strings.Builder) error {
		cfg := good()
		cfg.Logger = slog.New(slog.NewTextHandler(logged, nil))
		if create {
			cfg.CreateDeadLetterTopics = &TopicSpec{Config: map[string]string{"max.message.bytes": "1"}}
		}
		delays := []time.Duration{time.Minute}
		setup := &TopicSetup{
			Config: cfg, Admin: admin, Commands: Commands{Brokers: []string{"b:1"}, Group: "g"}, Delays: delays, OwnProducer: true,
			Topics: NewTopicList(GroupTopics{Group: "g", Delays: delays}, "t"),
			Classify: func(err error) Class {
				if errors.Is(err, errTopic) {
					return DeniedTopic
				}
				return classify(err)
			},
		}
		return setup.Ensure(t.Context())
	}
	for name, c := range map[string]struct {
		topics  []string
		change  func(*fakeAdmin)
		create  bool
		created []string
		want    string // in the error
		logged  string
	}{
		"all are there":     {topics: []string{"t", dlq, replays, retry}, logged: "hardly longer than their delay"},
		"created":           {topics: []string{"t"}, create: true, created: []string{dlq, replays, retry}, logged: "dead-letter topic created"},
		"no source":         {topics: []string{dlq}, create: true, want: "kafka-topics --bootstrap-server b:1 --create --topic t"},
		"no dead letters":   {topics: []string{"t", replays, retry}, want: "--create --topic t.g.dlq --partitions 3 --replication-factor 3 --config retention.ms=-1"},
		"no retry topic":    {topics: []string{"t", dlq, replays}, want: "--create --topic t.g.retry.1m --partitions 3 --replication-factor 3 --config cleanup.policy=delete"},
		"no replays":        {topics: []string{"t", dlq, retry}}, // only replays need it (rule 46)
		"source denied":     {topics: []string{"t", dlq}, change: func(f *fakeAdmin) { f.put("t", OpDescribe) }, want: "no right to read t: grant it: kafka-acls"},
		"write denied":      {topics: []string{"t", dlq, retry}, change: func(f *fakeAdmin) { f.put(retry, OpDescribe|OpRead) }, want: "no right to read and write t.g.retry.1m"},
		"group denied":      {topics: []string{"t", dlq, retry}, change: func(f *fakeAdmin) { f.groupErr = errDenied }, want: errDenied.Error()},
		"create denied":     {topics: []string{"t"}, create: true, change: func(f *fakeAdmin) { f.denied[dlq] = errTopic }, created: []string{replays, retry}, want: "no right to create dead-letter topic t.g.dlq: create it: kafka-topics"},
		"replays denied":    {topics: []string{"t"}, create: true, change: func(f *fakeAdmin) { f.denied[replays] = errTopic }, created: []string{dlq, retry}, logged: "topic for replayed dead letters cannot be created"},
		"create fails":      {topics: []string{"t"}, create: true, change: func(f *fakeAdmin) { f.denied[replays] = errTest }, want: "create retry topic t.g.retry: test"},
		"no answer":         {topics: []string{"t"}, change: func(f *fakeAdmin) { f.err = errTest }, want: "test"},
		"a former delay":    {topics: []string{"t", dlq, retry, "t.g.retry.5s"}, logged: "t.g.retry.5s"},
		"of another source": {topics: []string{"t", dlq, retry, "u.g.retry.5s"}, logged: ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				admin := newFakeAdmin(c.topics...)
				if c.change != nil {
					c.change(admin)
				}
				var logged strings.Builder
				began := time.Now()
				err := setUp(t, admin, c.create, &logged)
				require.LessOrEqual(t, time.Since(began), setupwait.Default)
				require.Equal(t, c.want != "", err != nil, "%v", err)
				if c.want != "" {
					require.ErrorContains(t, err, c.want)
				}
				require.Contains(t, logged.String(), c.logged)
				require.NotContains(t, logged.String(), "u.g.retry")
				require.ElementsMatch(t, c.created, slices.Collect(maps.Keys(admin.created)))
				if s := admin.created[dlq]; s != nil {
					require.Equal(t, map[string]string{"retention.ms": "-1", "max.message.bytes": "1"}, s)
				}
				if s := admin.created[retry]; s != nil && c.want == "" {
					require.Equal(t, map[string]string{"cleanup.policy": "delete", "max.message.bytes": "1"}, s)
					require.Equal(t, map[string]string{"retention.ms": "86460000"}, admin.changed[retry], "a minute and a day")
				}
			})
		})
	}
}

// lockedLog keeps log lines. Safe for concurrent use.
type lockedLog struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (l *lockedLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(line)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

// SetupWait: a start waits for a topic that is missing, and soon logs its name and the command that
// creates it. It asks the brokers ever less often, at last every 5 s.
func TestTopicSetup_SetupWait(t *testing.T) {
	for name, c := range map[string]struct {
		wait, comes, took time.Duration
		want              string
		repeats           int
	}{
		"no limit":       {wait: idem.Forever, comes: time.Hour, took: time.Hour + 3*time.Second, repeats: 59},
		"within it":      {wait: time.Minute, comes: 40 * time.Second, took: 43 * time.Second},
		"too late":       {wait: time.Minute, comes: time.Hour, took: time.Minute, want: "--create --topic t"},
		"of its default": {comes: time.Hour, took: setupwait.Default, want: "--create --topic t"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, logged := good(), new(lockedLog)
				cfg.SetupWait, cfg.Logger = c.wait, slog.New(slog.NewTextHandler(logged, nil))
				admin, began := newFakeAdmin("t.g.dlq"), time.Now()
				defer time.AfterFunc(c.comes, func() { admin.put("t", OpDescribe|OpRead) }).Stop()
				defer time.AfterFunc(5*time.Second, func() {
					require.Equal(t, 1, strings.Count(logged.String(), "--create --topic t"), logged.String())
				}).Stop()
				setup := &TopicSetup{
					Config: cfg.WithDefaults(), Admin: admin, Commands: Commands{Brokers: []string{"b:1"}, Group: "g"},
					OwnProducer: true, Topics: NewTopicList(GroupTopics{Group: "g"}, "t"), Classify: classify,
				}
				err := setup.Ensure(t.Context())
				require.Equal(t, c.took, time.Since(began))
				require.LessOrEqual(t, admin.looks, 10+int(c.took/(5*time.Second)))
				require.Equal(t, c.repeats, strings.Count(logged.String(), `"topics or rights are still missing, waiting for them" for=`), logged.String())
				if c.want == "" {
					require.NoError(t, err)
					require.Equal(t, 1, strings.Count(logged.String(), `"topics and rights are there" after=`), logged.String())
					require.Equal(t, 1, strings.Count(logged.String(), "topics or rights are missing"), logged.String())
				} else {
					require.ErrorContains(t, err, c.want)
				}
			})
		})
	}
}

// A topic that was just deleted may still exist in a broker's answer, and be missing in the next. A
// start creates the topic then, if configured, and does not advise to configure it.
func TestTopicSetup_JustDeleted(t *testing.T) {
	const dlq, retry = "t.g.dlq", "t.g.retry.1m"
	const advice = "or set CreateDeadLetterTopics"
	for name, c := range map[string]struct {
		topic    string
		keep     bool          // no CreateDeadLetterTopics
		deleting time.Duration // the controller refuses the name
		hidden   int           // answers without the new topic
		asked    int
		want     string // in the error
	}{
		"dead letters":                {topic: dlq, asked: 1},
		"retries":                     {topic: retry, asked: 1},
		"dead letters, a slow broker": {topic: dlq, hidden: 3, asked: 1},
		"retries, a slow broker":      {topic: retry, hidden: 3, asked: 1},
		"dead letters, not gone yet":  {topic: dlq, deleting: 700 * time.Millisecond, asked: 4},
		"retries, not gone yet":       {topic: retry, deleting: 700 * time.Millisecond, asked: 4},
		"dead letters, never gone":    {topic: dlq, deleting: time.Hour, asked: 5, want: "dead-letter topics do not exist: t.g.dlq: create them: kafka-topics"},
		"retries, never gone":         {topic: retry, deleting: time.Hour, asked: 5, want: "retry topics do not exist: t.g.retry.1m: create them: kafka-topics"},
		"dead letters, not to create": {topic: dlq, keep: true, want: "create them, " + advice},
		"retries, not to create":      {topic: retry, keep: true, want: "create them, " + advice},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				admin := newFakeAdmin("t", dlq, "t.g.retry", retry)
				delete(admin.topics, c.topic)
				admin.hidden[c.topic] = c.hidden
				admin.deleting[c.topic] = time.Now().Add(c.deleting)
				cfg := good()
				cfg.Logger = slog.New(slog.DiscardHandler)
				if !c.keep { // then a start looks once for the created topics
					admin.ghosts[c.topic] = 1
					cfg.CreateDeadLetterTopics = &TopicSpec{}
				}
				delays := []time.Duration{time.Minute}
				setup := &TopicSetup{
					Config: cfg.WithDefaults(), Admin: admin, Commands: Commands{Brokers: []string{"b:1"}, Group: "g"},
					Delays: delays, OwnProducer: true, Topics: NewTopicList(GroupTopics{Group: "g", Delays: delays}, "t"), Classify: classify,
				}
				began := time.Now()
				err := setup.Ensure(t.Context())
				require.Equal(t, c.asked, admin.asked[c.topic])
				if c.want == "" {
					require.NoError(t, err)
					require.Contains(t, admin.created, c.topic)
					require.Less(t, time.Since(began), setupwait.Default)
					require.Equal(t, c.topic == retry, admin.changed[retry] != nil, "its retention is set")
					return
				}
				require.Equal(t, setupwait.Default, time.Since(began))
				require.ErrorContains(t, err, c.want)
				require.Equal(t, c.keep, strings.Contains(err.Error(), advice))
			})
		})
	}
}

// A missing topic for replays is reported with advice that is true.
func TestTopicWatch_Lacking(t *testing.T) {
	for spec, advice := range map[*TopicSpec]string{nil: "or set CreateDeadLetterTopics", {}: "or start again"} {
		cfg, logged := good(), new(strings.Builder)
		cfg.CreateDeadLetterTopics, cfg.Logger = spec, slog.New(slog.NewTextHandler(logged, nil))
		watch := NewTopicWatch(cfg, newFakeAdmin("t"), Commands{Group: "g"}, NewTopicList(GroupTopics{Group: "g"}, "t"))
		_, err := watch.Look(t.Context())
		require.NoError(t, err)
		require.Contains(t, logged.String(), "create them, "+advice)
	}
}

type topicsSeen []observe.TopicEvent

func (s *topicsSeen) ObserveTopic(_ context.Context, e observe.TopicEvent) { *s = append(*s, e) }

// TestTopicWatch_Opened: the topics for replays are missing, or must not be read, at the start. The
// subscription is renewed for each soon after the repair.
func TestTopicWatch_Opened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := good()
		cfg.Logger = slog.New(slog.DiscardHandler)
		admin := newFakeAdmin("a", "b")
		admin.put("b.g.retry", OpDescribe)
		list := NewTopicList(GroupTopics{Group: "g"}, "a", "b")
		watch := NewTopicWatch(cfg, admin, Commands{Group: "g"}, list)
		_, err := watch.Look(t.Context())
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		renewed := make(chan error, 10)
		go watch.Run(ctx, func(cause error) { renewed <- cause })
		time.Sleep(10 * time.Minute)
		require.Empty(t, renewed)
		for _, topic := range []string{"a.g.retry", "b.g.retry"} {
			admin.put(topic, OpDescribe|OpRead)
			time.Sleep(lookEvery + suspectPause)
			require.Len(t, renewed, 1)
			require.ErrorIs(t, <-renewed, ErrTopicBack)
			require.Contains(t, list.Now(), topic)
		}
		synctest.Wait()
		looks := admin.looks
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Equal(t, looks, admin.looks, "no topic is missing")
	})
}

// TestTopicWatch_K27: a topic goes and comes back, a right is withdrawn, and the subscription
// follows.
func TestTopicWatch_K27(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := new(topicsSeen)
		cfg := good()
		cfg.Observers = []observe.Observer{seen}
		cfg.Logger = slog.New(slog.DiscardHandler)
		admin := newFakeAdmin("a", "b", "a.g.retry", "b.g.retry")
		list := NewTopicList(GroupTopics{Group: "g"}, "a", "b")
		watch := NewTopicWatch(cfg, admin, Commands{Group: "g"}, list)
		look := func() bool {
			renew, err := watch.Look(t.Context())
			require.NoError(t, err)
			return renew
		}
		require.False(t, look())
		require.Equal(t, []string{"a", "b", "a.g.retry", "b.g.retry"}, list.Now())

		delete(admin.topics, "a")
		require.False(t, look(), "the client ends the session itself")
		require.Equal(t, []string{"b", "a.g.retry", "b.g.retry"}, list.Now())
		require.Equal(t, []string{"a"}, list.Missing())

		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		renewed := make(chan error, 10)
		next := func() error {
			select {
			case err := <-renewed:
				return err
			case <-time.After(time.Hour):
				return nil
			}
		}
		go watch.Run(ctx, func(cause error) { renewed <- cause })
		time.Sleep(lookEvery + time.Second)
		require.Empty(t, renewed)
		admin.put("a", OpDescribe|OpRead)
		require.ErrorIs(t, next(), ErrTopicBack)
		require.Equal(t, []string{"a", "b", "a.g.retry", "b.g.retry"}, list.Now())

		time.Sleep(time.Minute)
		admin.put("b", OpDescribe)
		list.Suspect() // a broker refused to serve records
		began := time.Now()
		require.ErrorIs(t, next(), ErrTopicBack)
		require.Zero(t, time.Since(began), "at once")
		require.Equal(t, []string{"b"}, list.Missing())
		stop()
		synctest.Wait()

		admin.topics = map[string]TopicInfo{"a": {Denied: true}, "a.g.retry": {Denied: true}}
		_, err := watch.Subscription(t.Context(), false)
		require.ErrorIs(t, err, ErrUnauthorized)
		delete(admin.topics, "a")
		_, err = watch.Subscription(t.Context(), false)
		var missing *TopicError
		require.ErrorAs(t, err, &missing)
		require.Equal(t, []string{"a", "b"}, missing.Topics)
		require.Equal(t, []observe.TopicEvent{
			{Group: "g", Topic: "a", Missing: true}, {Group: "g", Topic: "a"}, {Group: "g", Topic: "b", Missing: true}, {Group: "g", Topic: "a", Missing: true},
		}, []observe.TopicEvent(*seen))
	})
}
