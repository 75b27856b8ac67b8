package chaos

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// services are a Kafka, a Postgres, a MariaDB and a Redis of a test's own, which may be crashed
// without disturbing others.
type services struct {
	t                                 testing.TB
	script                            string
	env                               []string
	brokers, postgres, mariadb, redis string
}

// privateServices starts them, or only those that are named. They are stopped in Cleanup. If the
// tests end before that, a guard process stops them, since services outlive their parent process.
func privateServices(t testing.TB, only ...string) *services {
	t.Helper()
	testenv.Kafka(t) // where the shared services can be had, so can these
	script, err := filepath.Abs("../services/services.sh")
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "idem-services-") //nolint:usetesting // removed by the guard, after the services
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755), "Postgres runs as another user") //nolint:gosec // no secrets
	s := &services{t: t, script: script, env: append(os.Environ(),
		"IDEM_SERVICES_DIR="+dir, "COMPOSE_PROJECT_NAME="+filepath.Base(dir),
		"IDEM_KAFKA_LOGIN_PORT=", "IDEM_KAFKA_MUTUAL_PORT=")} // beside IDEM_KAFKA_PORT
	for _, port := range []string{"KAFKA", "KAFKA_CONTROLLER", "POSTGRES", "MARIADB", "REDIS"} {
		s.env = append(s.env, fmt.Sprintf("IDEM_%s_PORT=%d", port, testenv.FreePort(t)))
	}
	s.guard(dir)
	s.run(append([]string{"up"}, only...)...)
	for line := range strings.Lines(s.run("env")) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		switch name {
		case "KAFKA_BROKERS":
			s.brokers = value
		case "POSTGRES_URL":
			s.postgres = value
		case "IDEM_MARIADB_DSN":
			s.mariadb = strings.Trim(value, "'\"")
		case "REDIS_URL":
			s.redis = value
		}
	}
	return s
}

// guard starts a shell that stops the services when the pipe to it is closed: by Cleanup, or by the
// kernel.
func (s *services) guard(dir string) {
	s.t.Helper()
	cmd := exec.Command("bash", "-c", `cat >/dev/null; "$1" down; rm -rf -- "$2"`, "guard", s.script, dir)
	cmd.Env = s.env
	attr := groupOfItsOwn()
	attr.Pdeathsig = 0 // it is there to live longer
	cmd.SysProcAttr = attr
	lifeline, err := cmd.StdinPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() {
		_ = lifeline.Close()
		_ = cmd.Wait() // best effort
	})
}

// run calls the script, which is never interrupted: half-started services would have no owner.
func (s *services) run(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(s.script, args...)
	cmd.Env = s.env
	var stderr strings.Builder
	cmd.Stderr = io.MultiWriter(&stderr)
	out, err := cmd.Output()
	require.NoError(s.t, err, "services.sh %v: %s", args, &stderr)
	return string(out)
}

// The ways to take a service away. A crashed one refuses connections, and a frozen one keeps those
// that it has and does not answer.
var (
	crash  = fault{"crashed", "stop", "start"}
	freeze = fault{"frozen", "pause", "resume"}
)

type fault struct{ name, away, back string }

// takeAway takes services away together for a while, and brings them back.
func (s *services) takeAway(how fault, length time.Duration, names ...string) {
	s.t.Helper()
	s.during(how, func() { pauseFor(s.t, length) }, names...)
}

// during takes services away together, calls f, and brings them back. A call of the script waits
// for every other one on the machine: it may take much longer than the service does.
func (s *services) during(how fault, f func(), names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.run(how.away, name)
	}
	f()
	for _, name := range names {
		s.run(how.back, name)
	}
}
