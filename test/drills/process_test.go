package drills

import (
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// process is a server of a drill.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	log  string
}

// start starts a program with its output in a file. Cleanup kills the program.
func start(t testing.TB, log string, name string, args ...string) *process {
	t.Helper()
	return launch(t, log, attributes(), name, args...)
}

// launch is start with the attributes of the process.
func launch(t testing.TB, log string, attr *syscall.SysProcAttr, name string, args ...string) *process {
	t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	defer out.Close()
	p := &process{cmd: exec.Command(name, args...), done: make(chan struct{}), log: log}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = out, out, attr
	p.cmd.Dir = "/"
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the status of a killed process has no meaning
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill ends the process at once, and waits for the end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// attributes make the server end with the tests. As root, servers run as another user, because
// Postgres and PgBouncer refuse root.
func attributes() *syscall.SysProcAttr {
	attr := ownAttributes()
	if uid, gid, ok := unprivileged(); ok {
		attr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	}
	return attr
}

// ownAttributes are those of a server that may run as root.
func ownAttributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	endWithTests(attr)
	return attr
}

// unprivileged returns the user of servers, if the tests run as root.
func unprivileged() (uid, gid uint32, ok bool) {
	if os.Geteuid() != 0 {
		return 0, 0, false
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		i, err1 := strconv.ParseUint(u.Uid, 10, 32)
		g, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return uint32(i), uint32(g), true
		}
	}
	return 0, 0, false
}

// run runs a program to its end, as the user of the servers.
func run(t testing.TB, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.SysProcAttr, cmd.Dir = attributes(), "/"
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
}

// directory returns a new directory that belongs to the user of the servers.
func directory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "idem-drill-") //nolint:usetesting // servers of another user cannot enter t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if uid, gid, ok := unprivileged(); ok {
		require.NoError(t, os.Chown(dir, int(uid), int(gid)))
	}
	return dir
}
