package soak

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// process is a worker process.
type process struct {
	t       testing.TB
	cmd     *exec.Cmd
	handled atomic.Int64 // as it said last
	log     string       // the file of its log
	ended   chan struct{}
	err     error // once ended
}

// begin starts a worker. It is killed in Cleanup, and it ends itself if the test dies.
func begin(t testing.TB, s spec, log string) *process {
	t.Helper()
	text, err := json.Marshal(s)
	require.NoError(t, err)
	p := &process{t: t, cmd: exec.Command(os.Args[0]), log: log, ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	said, err := os.Create(log)
	require.NoError(t, err)
	p.cmd.Stderr = said
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	_, err = p.cmd.StdinPipe() // its end tells the worker that the test is gone
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	var reader sync.WaitGroup
	reader.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if n, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil { // a kill may cut the last line
				p.handled.Store(max(n, p.handled.Load()))
			}
		}
	})
	go func() {
		defer close(p.ended)
		reader.Wait()
		p.err = p.cmd.Wait()
		_ = said.Close()
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // it may have ended
	<-p.ended
}

func (p *process) requireRunning() {
	p.t.Helper()
	select {
	case <-p.ended:
		require.Fail(p.t, "a worker ended by itself", "%v\n%s", p.err, p.tail())
	default:
	}
}

// stop ends the process in good order.
func (p *process) stop(limit time.Duration) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.ended:
	case <-time.After(limit):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // for its stacks
		<-time.After(2 * time.Second)
		require.Fail(p.t, "a worker does not end", p.tail())
	}
	require.NoError(p.t, p.err, p.tail())
}

// tail is the end of the log.
func (p *process) tail() string {
	const most = 8 << 10
	text, err := os.ReadFile(filepath.Clean(p.log))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}
