package main

import (
	"bytes"
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
)

// root returns the path of this clone.
func root(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../..")
	require.NoError(t, err)
	return path
}

func readPage(t *testing.T, name string) []byte {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root(t), name))
	require.NoError(t, err)
	return page
}

// programIn returns the block of a page that is a whole program.
func programIn(t *testing.T, page []byte) []byte {
	t.Helper()
	m := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindSubmatch(page)
	require.NotNil(t, m, "no program")
	return m[1]
}

const (
	saveProgram = "save as main.go"
	tidy        = "go mod tidy"
)

// step is a command about the module, or the place where a page has its program saved.
var step = regexp.MustCompile("(?m)(?:^ *|&& )(go mod (?:[^#&\n]*\\\\\n)*[^#&\n]*)|as `?main\\.go")

// stepsOf returns the steps by which a reader of a page makes the module, in the order of the page.
func stepsOf(page []byte) (steps []string) {
	for _, m := range step.FindAllSubmatch(page, -1) {
		command := string(bytes.TrimSpace(m[1]))
		if command == "" {
			command = saveProgram
		}
		steps = append(steps, command)
	}
	return steps
}

// makeModule takes the steps of a page, in the order of the page, and builds the program shop. Only
// in front of go mod tidy the module gets versions and checksums that this clone knows, so that
// tests need no network.
func makeModule(t *testing.T, dir string, page []byte) {
	t.Helper()
	for _, command := range stepsOf(page) {
		switch command {
		case saveProgram:
			save(t, dir, programIn(t, page))
			continue
		case tidy:
			addVersions(t, dir)
		}
		runShell(t, dir, nil, strings.ReplaceAll(command, "=../idem", "="+root(t)))
	}
	build(t, dir)
}

// A module is tidy only if the program was there before go mod tidy.
func TestStepsOfPages(t *testing.T) {
	for name, replaces := range map[string]int{"README.md": 2, "docs/getting-started.md": 1} {
		steps := stepsOf(readPage(t, name))
		require.Equal(t, replaces, strings.Count(strings.Join(steps, "\n"), "-replace "), name)
		for i, step := range steps {
			steps[i] = strings.Join(strings.Fields(step)[:3], " ")
		}
		require.ElementsMatch(t, []string{"go mod init", "go mod edit", saveProgram, tidy}, steps, name)
		require.Equal(t, tidy, steps[len(steps)-1], name)
	}
	require.Equal(t, []string{tidy, "go mod init a", saveProgram, "go mod edit -replace a=../b \\\n -replace c=d"},
		stepsOf([]byte("x\n go mod tidy\nmkdir a && go mod init a # saved as main.go\ngo mod edit -replace a=../b \\\n -replace c=d # e\n")))
}

// addVersions gives a module the versions and checksums that this clone knows.
func addVersions(t *testing.T, dir string) {
	t.Helper()
	var sums []byte
	for _, module := range []string{".", "dedup/sqlstore"} {
		sum, err := os.ReadFile(filepath.Join(root(t), module, "go.sum"))
		require.NoError(t, err)
		sums = append(sums, sum...)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
	pgx := regexp.MustCompile(`github\.com/jackc/pgx/v5 (v\S+)`).FindSubmatch(readPage(t, "go.mod"))
	require.NotNil(t, pgx)
	runShell(t, dir, nil, "go mod edit -require github.com/jackc/pgx/v5@"+string(pgx[1]))
}

// save writes main.go.
func save(t *testing.T, dir string, program []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), program, 0o600))
}

// build makes the program shop of a module.
func build(t *testing.T, dir string) {
	t.Helper()
	runShell(t, dir, nil, "go build -o shop .")
}

// runShell runs a command as a reader would, and returns its output.
func runShell(t *testing.T, dir string, env []string, command string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "bash", "-ec", command)
	c.Dir = dir
	c.Env = append(append(os.Environ(), "GOWORK=off", "GOFLAGS="), env...)
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s: %s", command, out)
	return string(out)
}

// startProgram starts the program, and returns the function that stops it and waits for its end.
func startProgram(t *testing.T, dir string, out *output, env []string, args ...string) (stop func()) {
	t.Helper()
	program := exec.CommandContext(t.Context(), filepath.Join(dir, "shop"), args...)
	program.Dir, program.Stdout, program.Stderr = dir, out, out
	program.Env = append(os.Environ(), env...)
	require.NoError(t, program.Start())
	done := make(chan error, 1)
	go func() { done <- program.Wait() }()
	return func() {
		require.NoError(t, program.Process.Signal(syscall.SIGTERM))
		select {
		case err := <-done:
			require.NoError(t, err, "%s", out)
		case <-time.After(30 * time.Second):
			require.Fail(t, "the program does not end", "%s", out)
		}
	}
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
