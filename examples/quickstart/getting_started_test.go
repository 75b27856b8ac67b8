package main

import (
	"bytes"
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/internal/testenv"
)

// A reader follows docs/getting-started.md: a duplicate, a poison event, its repair and its replay.
// Program, commands, SQL and events are those of the page. Kafka is in the process.
func TestGettingStarted_Idempotent(t *testing.T) {
	url := testenv.Postgres(t)
	page := readPage(t, "docs/getting-started.md")
	db, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer db.Close(context.Background())
	client, brokers := openKafka(t, "parcels")
	env := []string{
		"POSTGRES_URL=" + url, "KAFKA_BROKERS=" + brokers[0],
		"IDEM_STORE=" + url, "IDEM_BROKERS=" + brokers[0], "IDEM_GROUP=counter",
	}
	dir := t.TempDir()
	makeModule(t, dir, page)
	runShell(t, root(t), nil, "go build -C cmd/idem -o "+dir+"/idem")
	runShell(t, dir, env, commandIn(t, page, `^(\./idem migrate up)`))
	_, err = db.Exec(t.Context(), commandIn(t, page, `psql -c '(CREATE TABLE .*)'`))
	require.NoError(t, err)

	var out output
	stop := startProgram(t, dir, &out, env)
	oslo := commandIn(t, page, `'(\{"event_id":"p-1".*\})'`)
	poison := commandIn(t, page, `'(\{"event_id":"p-2".*\})'`)
	rome := commandIn(t, page, `'(\{"event_id":"p-3".*\})'`)
	for _, value := range []string{oslo, oslo, poison, rome} {
		r := &kgo.Record{Topic: "parcels", Value: []byte(value)}
		require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
	}
	waitForCommits(t, kadm.NewClient(client), "counter", "parcels")
	require.Equal(t, map[string]int{"Oslo": 1, "Rome": 1}, parcels(t, db))
	require.Contains(t, runShell(t, dir, env, "./idem event get p-1"), "done")
	require.Contains(t, runShell(t, dir, env, commandIn(t, page, `^(\./idem dlq ls .*?) *#`)),
		"permanent: a parcel without a city")
	stop()

	refusal := regexp.MustCompile(`(?m)^\tif city == "" \{\n.*\n\t\}\n`)
	program := programIn(t, page)
	repair := regexp.MustCompile("(?s)```go\n(\tif city == .*?)```").FindSubmatch(page)
	require.NotNil(t, repair)
	require.True(t, refusal.Match(program))
	program = bytes.Replace(refusal.ReplaceAll(program, repair[1]), []byte("\t\"errors\"\n"), nil, 1)
	save(t, dir, program)
	build(t, dir)
	stop = startProgram(t, dir, &out, env)
	replay := commandIn(t, page, `^(\./idem dlq replay .*?--yes)$`)
	runShell(t, dir, env, replay)
	require.Eventually(t, func() bool { return parcels(t, db)["Bern"] == 1 }, 30*time.Second,
		20*time.Millisecond, "%s", &out)
	require.Contains(t, runShell(t, dir, env, replay), "already done")
	runShell(t, dir, env, commandIn(t, page, `^(\./idem dlq purge .*?--yes)`))
	stop()
	require.Equal(t, map[string]int{"Bern": 1, "Oslo": 1, "Rome": 1}, parcels(t, db))
}

// commandIn returns the first group of a pattern that matches in a line of a page.
func commandIn(t *testing.T, page []byte, pattern string) string {
	t.Helper()
	m := regexp.MustCompile("(?m)" + pattern).FindSubmatch(page)
	require.NotNil(t, m, pattern)
	return string(m[1])
}

func parcels(t *testing.T, db *pgx.Conn) map[string]int {
	t.Helper()
	rows, err := db.Query(t.Context(), "SELECT city, n FROM parcels")
	require.NoError(t, err)
	counts := map[string]int{}
	for rows.Next() {
		var city string
		var n int
		require.NoError(t, rows.Scan(&city, &n))
		counts[city] = n
	}
	require.NoError(t, rows.Err())
	return counts
}
