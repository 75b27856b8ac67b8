package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
)

// A reader pastes the program of the README into an empty module, with the commands of the README,
// builds it, and runs it twice. Of all copies of an event, one is handled, also after the restart.
func TestREADMEProgram_Idempotent(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), programIn(t, page), 0o600))
	for _, command := range moduleCommandsIn(t, page) {
		runShell(t, dir, strings.ReplaceAll(command, "=../idem", "="+root))
		seedSums(t, root, dir)
	}
	runShell(t, dir, "go build -o shop .")

	client, brokers := openKafka(t, "payments")
	admin := kadm.NewClient(client)
	var out output
	for start := range 2 {
		for i := range 3 { // under other keys, and so in other partitions
			produce(t, client, fmt.Sprint(start, i))
		}
		stop := startProgram(t, dir, &out, brokers)
		waitForCommits(t, admin)
		stop()
		require.Equal(t, 1, strings.Count(out.String(), "mail to ann@example.com"), "%s", out.String())
	}
	require.Equal(t, 995, balance(t, filepath.Join(dir, "shop.db")))
	ends, err := admin.ListEndOffsets(t.Context(), "payments.orders.dlq")
	require.NoError(t, err)
	ends.Each(func(o kadm.ListedOffset) { require.Zero(t, o.Offset, "dead letters") })
}

// startProgram starts the program, and returns the function that stops it and waits for its end.
func startProgram(t *testing.T, dir string, out *output, brokers []string) (stop func()) {
	t.Helper()
	program := exec.CommandContext(t.Context(), filepath.Join(dir, "shop"), brokers...)
	program.Dir, program.Stdout, program.Stderr = dir, out, out
	require.NoError(t, program.Start())
	done := make(chan error, 1)
	go func() { done <- program.Wait() }()
	return func() {
		require.NoError(t, program.Process.Signal(syscall.SIGTERM))
		select {
		case err := <-done:
			require.NoError(t, err, "%s", out.String())
		case <-time.After(30 * time.Second):
			require.Fail(t, "the program does not end", out.String())
		}
	}
}

// programIn returns the block of a page that is a whole program.
func programIn(t *testing.T, page []byte) []byte {
	t.Helper()
	m := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindSubmatch(page)
	require.NotNil(t, m, "no program")
	return m[1]
}

// moduleCommandsIn returns the lines of a page's shell blocks that make the module.
func moduleCommandsIn(t *testing.T, page []byte) (commands []string) {
	t.Helper()
	for _, line := range regexp.MustCompile(`(?m)^ *go mod (?:.*\\\n)*.*`).FindAll(page, -1) {
		commands = append(commands, string(bytes.TrimSpace(line)))
	}
	require.GreaterOrEqual(t, len(commands), 3, "go mod init, edit, tidy: %q", commands)
	return commands
}

// seedSums gives the module the checksums that this clone knows, so that the test needs no network.
func seedSums(t *testing.T, root, dir string) {
	t.Helper()
	var sums []byte
	for _, module := range []string{".", "dedup/sqlstore"} {
		sum, err := os.ReadFile(filepath.Join(root, module, "go.sum"))
		require.NoError(t, err)
		sums = append(sums, sum...)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
}

func runShell(t *testing.T, dir, command string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "bash", "-ec", command)
	c.Dir = dir
	c.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s: %s", command, out)
}

// output may be written and read at once.
type output struct {
	mu sync.Mutex
	b  strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
