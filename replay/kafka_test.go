package replay

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/testenv"
)

const childEnv = "REPLAY_TEST_CHILD"

// servers are the places of a test, for the process that is killed.
type servers struct {
	Brokers      []string
	Topic, Group string
	Postgres     string
}

// bank is a database with a row for each committed run of an event.
type bank struct {
	pool  *pgxpool.Pool
	store *pgstore.Store
}

func openBank(t *testing.T, url string) bank {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return bank{pool, pgstore.New(pool)}
}

// router returns the router of the group. A name distinguishes its runs.
func (b bank) router(name string) *idem.Router {
	r := idem.NewRouter(idem.Type(idem.Fixed("paid")), idem.ID(idem.FromHeader("event-id")))
	idem.OnTx(r, "paid", func(ctx context.Context, tx pgx.Tx, e idem.Event[struct{}]) error {
		_, err := tx.Exec(ctx, `INSERT INTO runs (name, event) VALUES ($1, $2)`, name, e.ID)
		return err
	})
	return r
}

// count returns the number of runs, and of events that ran.
func (b bank) count(t *testing.T, name string) (runs, events int) {
	t.Helper()
	require.NoError(t, b.pool.QueryRow(t.Context(),
		`SELECT count(*), count(DISTINCT event) FROM runs WHERE name = $1`, name).Scan(&runs, &events))
	return runs, events
}

func (b bank) once(t *testing.T, name string, events int) {
	t.Helper()
	runs, distinct := b.count(t, name)
	require.Equal(t, events, distinct, name)
	require.Equal(t, events, runs, name)
}

// progress returns the recorded positions of a scope.
func (b bank) progress(t *testing.T, scope, topic string) []dedup.Progress {
	t.Helper()
	p, err := b.store.Progress(t.Context(), scope, topic)
	require.NoError(t, err)
	return p
}

func (s servers) live(store dedup.Store) consumer.Config {
	return consumer.Config{
		Brokers: s.Brokers, Group: s.Group, Topics: []string{s.Topic}, Store: store,
		Lease: 2 * time.Second, CreateDeadLetterTopics: &consumer.TopicSpec{}, Logger: quiet,
		CommitInterval: 100 * time.Millisecond, Grace: 5 * time.Second,
	}
}

// committed returns the committed offsets and the members of the group.
func committed(t *testing.T, admin sarama.ClusterAdmin, group, topic string) (map[int32]int64, []string) {
	t.Helper()
	answer, err := admin.ListConsumerGroupOffsets(group, nil)
	require.NoError(t, err)
	offsets := make(map[int32]int64)
	for id, block := range answer.Blocks[topic] {
		offsets[id] = block.Offset
	}
	groups, err := admin.DescribeConsumerGroups([]string{group})
	require.NoError(t, err)
	var members []string
	for id := range groups[0].Members {
		members = append(members, id)
	}
	return offsets, members
}

// Beside a live group with committed offsets, a window runs once more under its own scope, although
// the process is killed in the middle. Neither the offsets and members of the group nor its
// progress in the store change. In the scope of the group only a forgotten event runs.
func TestKafka_BesideTheLiveGroup(t *testing.T) {
	if text := os.Getenv(childEnv); text != "" {
		replayInChild(t, text)
		return
	}
	s := servers{Brokers: testenv.Kafka(t), Postgres: testenv.Postgres(t)}
	s.Topic = testenv.CreateTopic(t, s.Brokers, 2)
	s.Group = "g-" + s.Topic
	b := openBank(t, s.Postgres)
	require.NoError(t, pgstore.Migrate(t.Context(), b.pool))
	_, err := b.pool.Exec(t.Context(), `CREATE TABLE runs (name text, event text)`)
	require.NoError(t, err)
	w := worldOn(t, s.Brokers, s.Topic, s.Group)
	w.write(400, kgo.TryCommit)
	w.write(2, kgo.TryAbort) // the logs end with the marker of an aborted transaction

	live, err := consumer.New(s.live(b.store), b.router("live"))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- live.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })
	// A marker counts as consumed when the broker was asked, about every 10 s. The record of
	// progress before that question has the offset in front of the markers.
	const end = 203
	require.Eventually(t, func() bool {
		offsets, _ := committed(t, w.admin, s.Group, s.Topic)
		progress := b.progress(t, s.Group, s.Topic)
		return offsets[0] == end && offsets[1] == end &&
			len(progress) == 2 && progress[0].Next == end && progress[1].Next == end
	}, time.Minute, 50*time.Millisecond)
	b.once(t, "live", 400)
	offsets, members := committed(t, w.admin, s.Group, s.Topic)
	progress := b.progress(t, s.Group, s.Topic)

	// the process that is killed
	text, err := json.Marshal(s)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Wait() }() // killed: its status has no meaning
	defer func() { _ = cmd.Process.Kill() }()
	require.Eventually(t, func() bool { n, _ := b.count(t, "replay"); return n >= 100 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	n, _ := b.count(t, "replay")
	require.Less(t, n, 390, "killed too late to show anything")

	again := func(name string, scope Scope) (Plan, Result) {
		r, err := New(s.live(b.store), b.router(name), Config{Window: Between(began, time.Time{}), Scope: scope})
		require.NoError(t, err)
		defer func() { require.NoError(t, r.Close()) }()
		plan := w.plan(r)
		result, err := r.Run(t.Context(), plan, nil)
		require.NoError(t, err)
		require.True(t, result.Complete)
		require.Equal(t, Position{s.Topic: {0: end, 1: end}}, result.Position)
		return plan, result
	}
	plan, result := again("replay", OwnScope("fix"))
	require.EqualValues(t, 406, plan.Records())
	require.EqualValues(t, 400, result.Counts.Settled())
	require.GreaterOrEqual(t, result.Counts.Duplicates, int64(n))
	b.once(t, "replay", 400)
	b.once(t, "live", 400)
	_, result = again("replay", SameScope())
	require.Equal(t, Counts{Duplicates: 400}, result.Counts)

	// a forgotten event runs, and no other
	require.NoError(t, b.store.Forget(t.Context(), dedup.Key{Scope: s.Group, Type: "paid", ID: "e007"}))
	_, result = again("forgotten", SameScope())
	require.Equal(t, Counts{Handled: 1, Duplicates: 399}, result.Counts)
	b.once(t, "forgotten", 1)

	after, same := committed(t, w.admin, s.Group, s.Topic)
	require.Equal(t, offsets, after)
	require.Equal(t, members, same)
	require.Equal(t, progress, b.progress(t, s.Group, s.Topic))
	require.Empty(t, b.progress(t, s.Group+".replay.fix", s.Topic))
	groups, err := w.admin.ListConsumerGroups()
	require.NoError(t, err)
	for group := range groups {
		require.False(t, strings.HasPrefix(group, s.Group) && group != s.Group, "group %s", group)
	}
	// Rows of the own scope stay, expired or not, until the reaper is given the scope.
	_, err = b.pool.Exec(t.Context(),
		`UPDATE processed_events SET expires_at = now() - interval '2 h' WHERE scope = $1`, s.Group+".replay.fix")
	require.NoError(t, err)
	for _, wallClock := range [][]string{nil, {s.Group + ".replay.fix"}} {
		var deleted int64
		for range 2 { // the first run announces, the second deletes
			reaper := pgstore.NewReaper(b.store, pgstore.ReaperConfig{WallClock: wallClock, Grace: time.Millisecond})
			reaped, err := reaper.RunOnce(t.Context())
			require.NoError(t, err)
			require.False(t, reaped.Elsewhere)
			deleted += reaped.Events
		}
		require.EqualValues(t, len(wallClock)*400, deleted)
	}

	// a mistyped scope of the group would run everything
	wrong := s.live(b.store)
	wrong.Scope = "mistyped"
	r, err := New(wrong, b.router("wrong"), Config{Window: all, Scope: SameScope()})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	_, err = r.Run(t.Context(), w.plan(r), nil)
	require.ErrorIs(t, err, dedup.ErrOtherScope)

	// a part of the window is deleted
	require.NoError(t, w.admin.DeleteRecords(s.Topic, map[int32]int64{1: 50}))
	r, err = New(s.live(b.store), b.router("rest"), Config{
		Window: Between(began, time.Time{}), Scope: OwnScope("rest"), SkipDeleted: true,
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	plan = w.plan(r)
	require.Equal(t, []bool{false, true}, []bool{plan.Partitions[0].MaybeDeleted, plan.Partitions[1].MaybeDeleted})
	result, err = r.Run(t.Context(), plan, nil)
	require.NoError(t, err)
	require.Equal(t, Counts{Handled: 350}, result.Counts)
}

// replayInChild replays slowly until the process is killed.
func replayInChild(t *testing.T, text string) {
	t.Helper()
	var s servers
	require.NoError(t, json.Unmarshal([]byte(text), &s))
	b := openBank(t, s.Postgres)
	r, err := New(s.live(b.store), b.router("replay"), Config{Window: all, Scope: OwnScope("fix"), Rate: 100})
	require.NoError(t, err)
	plan, err := r.Plan(t.Context())
	require.NoError(t, err)
	_, err = r.Run(t.Context(), plan, nil)
	require.NoError(t, err)
}
