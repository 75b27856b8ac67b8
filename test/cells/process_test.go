package cells

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// process is a worker of a cell.
type process struct {
	t     testing.TB
	name  string
	cmd   *exec.Cmd
	said  output
	ended chan struct{}
	err   error // once ended
}

// begin starts a worker. It is killed in Cleanup, and it ends itself if the test dies.
func begin(t testing.TB, s spec) *process {
	t.Helper()
	text, err := json.Marshal(s)
	require.NoError(t, err)
	p := &process{t: t, name: s.Name, ended: make(chan struct{}), cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	_, err = p.cmd.StdinPipe() // its end tells the worker that the test is gone
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.ended
		if t.Failed() {
			t.Logf("%s:\n%s", p.name, p.said.tail())
		}
	})
	return p
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // it may have ended

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// wait waits for the end.
func (p *process) wait(limit time.Duration) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(limit):
		p.signal(syscall.SIGQUIT) // for its stacks
		select {
		case <-p.ended:
		case <-time.After(5 * time.Second): // it may be stopped
			p.signal(syscall.SIGKILL)
			<-p.ended
		}
		require.Fail(p.t, "a worker does not end", p.name)
	}
}

// waitStopped waits until the kernel has stopped the process.
func (p *process) waitStopped() {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		_, rest, found := bytes.Cut(stat, []byte(") "))
		return err == nil && found && bytes.HasPrefix(rest, []byte("T"))
	}, 10*time.Second, 5*time.Millisecond, "the worker is not stopped")
}

// output keeps the output of a process.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.buf.Len() > 1<<20 {
		return len(p), nil
	}
	return o.buf.Write(p)
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := strings.Split(o.buf.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}
