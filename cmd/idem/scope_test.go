package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/dedup/sqlstore/mysql"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
	"github.com/idem-go/idem/internal/testenv"
)

// scopeWorld is a topic of events, and a consumer of it.
type scopeWorld struct {
	t       *testing.T
	brokers []string
	store   dedup.Store
	ran     map[string]int
}

// run starts a consumer until it has settled the topic, or refuses to start.
func (w *scopeWorld) run(group string, opts ...idem.Option) error {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	handled := make(chan string, 16)
	r := idem.NewRouter()
	idem.On(r, "paid", func(_ context.Context, e idem.Event[struct{}]) error {
		handled <- e.ID
		return nil
	}, opts...)
	c, err := consumer.New(consumer.Config{
		Brokers: w.brokers, Group: group, Topics: []string{"orders"}, Store: w.store,
		CreateDeadLetterTopics: &consumer.TopicSpec{},
	}, r)
	require.NoError(w.t, err)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for {
		select {
		case err := <-ended:
			return err
		case id := <-handled:
			w.ran[id]++
		case <-time.After(20 * time.Millisecond):
			if c.Ready() == nil {
				cancel()
			}
		}
	}
}

// shell returns the words of a command, as a shell reads them.
func shell(t *testing.T, line string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `set -- `+line+`; for w in "$@"; do printf '%s\0' "$w"; done`).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// advised is the command that the error of a consumer names.
func advised(t *testing.T, err error) []string {
	t.Helper()
	_, line, ok := strings.Cut(err.Error(), "instead, with: ")
	require.True(t, ok, "%v", err)
	words := shell(t, strings.TrimSuffix(line, ")"))
	require.Equal(t, "idem", words[0])
	return words[1:]
}

// The command that a refused consumer names lets the consumer start, once, as the flags in code do.
func scopeCommands(t *testing.T, store dedup.Store, flags ...string) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	w := &scopeWorld{t: t, brokers: cluster.ListenAddrs(), store: store, ran: map[string]int{}}
	on := func(words []string, more ...string) []string {
		return slices.Concat(words, flags, more)
	}
	first := fmt.Sprintf("billing-%d", time.Now().UnixNano())
	require.NoError(t, w.run(first))

	byPayment := idem.ID(idem.FirstOf(idem.FromJSON("payment's"), idem.FromHeader("x")))
	refused := w.run(first, byPayment)
	require.ErrorIs(t, refused, dedup.ErrIdentityChanged)
	accept := advised(t, refused)
	require.Equal(t, []string{"scope", "accept", "--new-identity", "--scope", first, "--type", "paid"}, accept[:7])
	no := commandWith(t, nil, "n\n", on(accept)...)
	no.failed(t, exitFound, `type "paid"`, "run again")
	require.Equal(t, "refused", no.audits(t)[0]["outcome"])
	require.ErrorIs(t, w.run(first, byPayment), dedup.ErrIdentityChanged, "nothing was accepted")
	yes := command(t, on(accept, "-y")...)
	require.Contains(t, yes.ok(t), "accepted in")
	require.Equal(t, "scope accept", yes.audits(t)[0]["audit"])
	require.NoError(t, w.run(first, byPayment))
	require.ErrorIs(t, w.run(first), dedup.ErrIdentityChanged, "no other identity was accepted")
	command(t, on(accept, "-y")...).ok(t)

	wrong := append([]string{}, accept...)
	wrong[6] = "sold"
	command(t, on(wrong, "-y")...).failed(t, exitFound, `no record of type "sold"`)
	wrong = append([]string{}, accept...)
	wrong[4] = first + "-typo"
	command(t, on(wrong, "-y")...).failed(t, exitFound, "no record")

	second := first + "-v2"
	refused = w.run(second, byPayment)
	require.ErrorIs(t, refused, dedup.ErrOtherScope)
	create := advised(t, refused)
	require.Equal(t, []string{"scope", "create", "--scope", second, "--group", second, "--topic", "orders"}, create)
	commandWith(t, nil, "n\n", on(create)...).failed(t, exitFound, "also those that other scopes")
	require.ErrorIs(t, w.run(second, byPayment), dedup.ErrOtherScope)
	made := command(t, on(create, "-y", "-o", "json")...)
	var result scopeResult
	require.NoError(t, json.Unmarshal([]byte(made.ok(t)), &result))
	require.Equal(t, []string{"orders"}, result.Topics)
	require.Equal(t, "scope create", made.audits(t)[0]["audit"])
	require.NoError(t, w.run(second, byPayment))
	require.NoError(t, w.run(second, byPayment))
	require.ErrorIs(t, w.run(first+"-v3", byPayment), dedup.ErrOtherScope, "no other scope was created")
}

func TestScopeCommandsOnPostgres(t *testing.T) {
	onPostgres(t, func(t *testing.T, s *pgstore.Store, url string) { scopeCommands(t, s, "--store", url) })
}

func TestScopeCommandsOnSQLite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	s, err := sqlite.Open(t.Context(), file, sqlite.NoReaper())
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	scopeCommands(t, s, "--store", "sqlite:"+file)
}

func TestScopeCommandsOnMariaDB(t *testing.T) {
	dsn := testenv.MariaDB(t)
	cfg, err := driver.ParseDSN(dsn)
	require.NoError(t, err)
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	require.NoError(t, mysql.Migrate(t.Context(), db))
	t.Setenv("IDEM_STORE", fmt.Sprintf("mysql://%s:%s@%s/%s", cfg.User, cfg.Passwd, cfg.Addr, cfg.DBName))
	scopeCommands(t, mysql.New(db))
}

func TestScopeCommandsOnRedis(t *testing.T) {
	client, prefix := testenv.Redis(t)
	scopeCommands(t, redisstore.New(client, redisstore.Prefix(prefix)), "--store", redisURL(t), "--redis-prefix", prefix)
}

func TestScopeCommands_Usage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"accept"}, "--new-identity"},
		{[]string{"accept", "--new-identity", "--type", "a"}, "1 types, 0 descriptors"},
		{[]string{"accept", "--new-identity", "--type", "a", "--descriptor", "x", "--type", "a", "--descriptor", "y"}, "twice"},
		{[]string{"accept", "--new-identity", "--type", "a", "--descriptor", ""}, "empty"},
		{[]string{"accept", "--new-identity", "--type", "a", "--descriptor", "x"}, "no scope"},
		{[]string{"create", "--topic", "t"}, "no consumer group"},
		{[]string{"create", "-G", "g"}, "no topics"},
		{[]string{"create", "-G", "g", "--topic", "t"}, "no store"},
	} {
		command(t, append([]string{"scope"}, c.args...)...).failed(t, exitUsage, c.want)
	}
	_, known := memory()
	commandWith(t, known, "", "scope", "create", "-G", "g", "--topic", "t", "--store", inMemory).
		failed(t, exitUsage, "keeps no records of scopes")
}
