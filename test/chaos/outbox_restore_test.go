package chaos

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
)

// A dump that is made while writers write and a relay works is restored into a new cluster with
// lower numbers of transactions. The rows that waited at the dump are sent from there, and the rows
// that are added there later, in order (O-03).
func TestOutboxRestoredElsewhere(t *testing.T) {
	t.Parallel()
	needTime(t)
	_, seed := newSeeded(t)
	began := time.Now()
	old := newMailbox(t, testenv.Kafka(t), testenv.Postgres(t), outboxPartitions)
	elsewhere := privateServices(t, "postgres")
	const pace = "150ms" // so that rows wait
	relay := old.relay("old", "-lease", "1s", "-batch", "50", "-pace", pace)
	w := old.write(8, seed, &writers{size: 20, pause: 100 * time.Millisecond})
	require.Eventually(t, func() bool { relay.requireRunning(); return w.events.Load() > 1000 && sentBy(relay) > 200 }, 30*time.Second, 10*time.Millisecond)
	schema, dump := old.dump(elsewhere.script)
	relay.kill() // the old cluster is gone
	w.end(true)
	events := old.committed()

	b := old.restored(elsewhere, schema, dump)
	has := make(map[int]bool) // transactions that the dump has
	for _, e := range b.committed() {
		has[e.tx] = true
	}
	waited := b.waitingIDs()
	require.Greater(t, len(waited), 100, "rows that waited when the dump was made")
	last := b.count(`SELECT max(seq) FROM idem_outbox`)
	ends, err := b.kafka.ends(b.topic)
	require.NoError(t, err)

	const after = 1_000_000 // the numbers of transactions that begin after it
	more := &writers{size: 20, goal: 500, pause: 50 * time.Millisecond}
	more.txs.Store(after)
	b.write(4, seed+1, more).end(false)
	require.EqualValues(t, more.events.Load(), b.pg.count(t, `SELECT count(*) FROM idem_outbox WHERE seq > $1`, last), "numbers go on")
	next := b.relay("new", "-lease", "1s")
	b.waitEmpty(30*time.Second, next)
	next.stop(20 * time.Second)
	for _, e := range b.committed() {
		if e.tx > after {
			events = append(events, e)
		}
	}
	v := b.requireSent(events, func(e emission) bool { return e.tx < after && !has[e.tx] })
	for _, r := range b.records() {
		if r.Offset >= ends[r.Partition] {
			delete(waited, header(r, outbox.HeaderID))
		}
	}
	require.Empty(t, waited, "waited in the dump, and were not sent from there")
	soaked(t, t.Name(), seed, len(events), 1, 0, 0, fmt.Sprintf(
		"0 missing, in order; %d transactions in the dump, %d rows sent from there and %d that came later; %d repeats; %s",
		len(has), sentBy(next)-int(more.events.Load()), more.events.Load(), v.repeats, seconds(time.Since(began))))
}

// dump returns the name of the schema, and the output of pg_dump for it.
func (b *mailbox) dump(path string) (schema, dump string) {
	b.t.Helper()
	u, err := url.Parse(b.pg.url)
	require.NoError(b.t, err)
	schema = u.Query().Get("search_path")
	return schema, script(b.t, path, os.Environ(), "", "postgres", "pg_dump", "--schema="+schema)
}

// restored is the same mailbox in a new cluster.
func (b *mailbox) restored(in *services, schema, dump string) *mailbox {
	b.t.Helper()
	script(b.t, in.script, in.env, dump, "postgres", "psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", "-")
	c := *b
	c.pg = openPostgresBox(b.t, in.postgres+"&search_path="+schema)
	c.pg.entry = b.pg.entry
	c.db = c.pg
	const next = `SELECT pg_current_xact_id()::text::bigint`
	require.Less(b.t, c.count(next), b.count(next), "the new cluster counts its transactions from the beginning")
	return &c
}

func (b *mailbox) waitingIDs() map[string]bool {
	b.t.Helper()
	rows, err := b.pg.pool.Query(b.t.Context(), `SELECT event_id FROM idem_outbox WHERE state = 0`)
	require.NoError(b.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// script runs services.sh with an input and returns its output. If a program is missing, the test
// fails with the name of the package to install.
func script(t testing.TB, path string, env []string, input string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = env
	cmd.Stdin = strings.NewReader(input)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "services.sh %v: %s", args, &stderr)
	return string(out)
}
