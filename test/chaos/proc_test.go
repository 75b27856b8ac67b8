package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// starter starts all processes from one OS thread. A child that is to die with its parent dies with
// the thread that started it, and Go may end threads at any time.
var starter = threadOf{work: make(chan func())}

type threadOf struct{ work chan func() }

// run keeps the thread until stop is called.
func (s threadOf) run() (stop func()) {
	var thread sync.WaitGroup
	thread.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for f := range s.work {
			f()
		}
	})
	return func() {
		close(s.work)
		thread.Wait()
	}
}

func (s threadOf) start(cmd *exec.Cmd) (err error) {
	done := make(chan struct{})
	s.work <- func() {
		defer close(done)
		err = cmd.Start()
	}
	<-done
	return err
}

// programs are the examples under test, built once each.
var programs = builder{paths: make(map[string]string)}

type builder struct {
	mu    sync.Mutex
	dir   string
	paths map[string]string
}

// path builds examples/<name>, or the worker of that name beside these tests.
func (b *builder) path(t testing.TB, name string) string {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if path, ok := b.paths[name]; ok {
		return path
	}
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "idem-chaos-") //nolint:usetesting // outlives the test, for the next one
		require.NoError(t, err)
		b.dir = dir
	}
	path, module := filepath.Join(b.dir, name), "."
	if _, err := os.Stat(name); err != nil {
		module = "../../examples"
	}
	out, err := exec.CommandContext(t.Context(), "go", "-C", module, "build", "-o", path, "./"+name).CombinedOutput()
	require.NoError(t, err, "build %s: %s", name, out)
	b.paths[name] = path
	return path
}

func (b *builder) remove() {
	if b.dir != "" {
		_ = os.RemoveAll(b.dir) // in the system's directory for such things anyway
	}
}

// proc is a worker as an operating system process of its own.
type proc struct {
	t              testing.TB
	name           string
	cmd            *exec.Cmd
	stdout, stderr output
	done           chan struct{} // closed when it has ended
	err            error         // how; once done is closed
}

// start starts a program. It is killed in Cleanup, and also if the tests end in any other way.
func start(t testing.TB, name, path string, env []string, args ...string) *proc {
	t.Helper()
	return startIn(t, "", name, path, env, args...)
}

// startIn is start in a directory.
func startIn(t testing.TB, dir, name, path string, env []string, args ...string) *proc {
	t.Helper()
	p := &proc{t: t, name: name, done: make(chan struct{})}
	p.cmd = exec.Command(path, args...)
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.SysProcAttr = groupOfItsOwn()
	p.cmd.WaitDelay = 5 * time.Second
	require.NoError(t, starter.start(p.cmd), "start %s", name)
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		replaced := !p.running()
		p.kill()
		if t.Failed() && !replaced {
			t.Logf("%s said last:\n%s", p, p.stderr.tail(25))
		}
	})
	return p
}

func (p *proc) String() string { return fmt.Sprintf("%s (pid %d)", p.name, p.cmd.Process.Pid) }

// kill ends the process and its children without warning, as kill -9 does, and waits until it is
// gone.
func (p *proc) kill() {
	if p.running() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended just now
	}
	<-p.done
}

// stop asks the process to end, and requires that it does so in time and in good order.
func (p *proc) stop(limit time.Duration) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM), "%s has ended before", p)
	select {
	case <-p.done:
	case <-time.After(limit):
		require.Fail(p.t, "does not end", "%s still runs %s after SIGTERM:\n%s", p, limit, p.dump())
	}
	require.NoError(p.t, p.err, "%s did not end well", p)
}

// dump ends a process that hangs and returns its last output: the stacks of all its goroutines.
func (p *proc) dump() string {
	_ = p.cmd.Process.Signal(syscall.SIGQUIT) // it may have ended
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
	}
	return p.stderr.tail(1000)
}

func (p *proc) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// requireRunning fails the test if a worker has ended by itself.
func (p *proc) requireRunning() {
	p.t.Helper()
	if !p.running() {
		require.Fail(p.t, "not running", "%s ended by itself: %v\n%s\n%s", p, p.err, p.stdout.tail(20), p.stderr.tail(40))
	}
}

// output keeps the output of a process.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

var _ io.Writer = (*output)(nil)

// maxOutput bounds the output of one process. It is more than a process writes in any test.
const maxOutput = 64 << 20

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.buf.Len()+len(p) > maxOutput {
		return 0, errors.New("the process writes without end")
	}
	return o.buf.Write(p)
}

// lines returns the lines written so far that contain all of the texts. A line that was cut short
// by a kill counts too.
func (o *output) lines(texts ...string) (found []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
next:
	for line := range strings.Lines(o.buf.String()) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue next
			}
		}
		found = append(found, strings.TrimSpace(line))
	}
	return found
}

// tail returns the last n lines, without those about progress.
func (o *output) tail(n int) string {
	lines := slices.DeleteFunc(o.lines(), func(line string) bool { return strings.Contains(line, `msg="so far"`) })
	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}
