package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/internal/redact"
)

// ran is the output of a command.
type ran struct {
	code           int
	stdout, stderr string
}

// command runs the command in this process, without a person to answer. The environment of the test
// does not count.
func command(t testing.TB, args ...string) ran {
	t.Helper()
	return commandWith(t, nil, "", args...)
}

// commandWith runs the command with stores that are there already, by URL, and the text that a
// person types.
func commandWith(t testing.TB, ledgers map[string]*openedStore, typed string, args ...string) ran {
	t.Helper()
	return commandIn(t.Context(), t, ledgers, strings.NewReader(typed), args...)
}

func commandIn(ctx context.Context, t testing.TB, ledgers map[string]*openedStore, stdin io.Reader, args ...string) ran {
	t.Helper()
	args = withoutPasswords(t, args)
	var stdout, stderr bytes.Buffer
	code := (&app{stdin: stdin, stdout: &stdout, stderr: &stderr, known: ledgers}).run(ctx, args)
	return ran{code, stdout.String(), stderr.String()}
}

// withoutPasswords puts URLs with passwords into files, since the command line takes no passwords.
func withoutPasswords(t testing.TB, args []string) []string {
	t.Helper()
	args = slices.Clone(args)
	for i := 1; i < len(args); i++ {
		if slices.Contains([]string{"--store", "--outbox", "--from-url"}, args[i-1]) && redact.HasPassword(args[i]) {
			path := filepath.Join(t.TempDir(), "url")
			require.NoError(t, os.WriteFile(path, []byte(args[i]+"\n"), 0o600))
			args[i] = "@" + path
		}
	}
	return args
}

// ok wants the command to have succeeded and returns its output.
func (r ran) ok(t testing.TB) string {
	t.Helper()
	require.Equal(t, exitOK, r.code, "%s%s", r.stdout, r.stderr)
	return r.stdout
}

// failed wants an exit code and words on standard error.
func (r ran) failed(t testing.TB, code int, words ...string) {
	t.Helper()
	require.Equal(t, code, r.code, "%s%s", r.stdout, r.stderr)
	for _, w := range words {
		require.Contains(t, r.stderr, w)
	}
}

// json decodes the output of a command with --output json.
func (r ran) json(t testing.TB, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(r.stdout), into), "%s%s", r.stdout, r.stderr)
}

// audits are the audit lines.
func (r ran) audits(t testing.TB) []map[string]any {
	t.Helper()
	return auditLines(t, r.stderr)
}

func auditLines(t testing.TB, text string) (all []map[string]any) {
	t.Helper()
	for _, line := range strings.Split(text, "\n") {
		if strings.Contains(line, `"audit":`) {
			var fields map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &fields), line)
			all = append(all, fields)
		}
	}
	return all
}

// inMemory is a store for tests without services, and its URL.
const inMemory = "mem://store"

func memory() (*memstore.Store, map[string]*openedStore) {
	s := memstore.New(memstore.Volatile())
	return s, map[string]*openedStore{inMemory: {name: "memory", store: s}}
}

// inScope is a key of the scope that tests use.
func inScope(typ, id string) dedup.Key { return dedup.Key{Scope: "billing", Type: typ, ID: id} }

// claim takes an event and returns its claim.
func claim(t testing.TB, s dedup.Store, key dedup.Key, o dedup.Origin) dedup.Claim {
	t.Helper()
	token := dedup.NewToken()
	reqs := []dedup.Request{{Key: key, Origin: o, Retention: time.Hour}}
	var answers [1]dedup.Answer
	require.NoError(t, s.Claim(t.Context(), token, time.Minute, reqs, answers[:]))
	require.True(t, answers[0].Verdict.Held(), "%s", answers[0].Verdict)
	return reqs[0].Held(token, answers[0])
}

// toldNext returns the verdict of the store for a next delivery.
func toldNext(t testing.TB, s dedup.Store, key dedup.Key) dedup.Verdict {
	t.Helper()
	reqs := []dedup.Request{{Key: key, Origin: dedup.Origin{Topic: "orders", Offset: 99}, Retention: time.Hour}}
	var answers [1]dedup.Answer
	require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, reqs, answers[:]))
	return answers[0].Verdict
}

// finish ends a claim: done, or dead if reason is not empty.
func finish(t testing.TB, s dedup.Store, c dedup.Claim, reason string) {
	t.Helper()
	require.NoError(t, s.Complete(t.Context(), []dedup.Completion{{Claim: c, Retention: time.Hour, Dead: reason}}))
}

// dedupOrigin is a delivery of topic orders.
func dedupOrigin(offset int64) dedup.Origin {
	return dedup.Origin{Topic: "orders", Partition: 2, Offset: offset, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

// tempFile is a new file.
func tempFile(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// read is the text of a file.
func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
