package compose

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stubs are two services that are files: "running" is the process, "data" is what it keeps. The
// service "second" does not start while BROKEN is set. A Docker engine writes its commands down.
const stubs = `
SERVICES=(first second)
for service in "${SERVICES[@]}"; do
	eval "
		${service}_port() { echo 1; }
		${service}_healthy() { [[ -e \$STATE/$service/running ]]; }
		${service}_pid() { ${service}_healthy && echo 1; }
		${service}_install() { :; }
		${service}_start() { stub_start $service; }
		${service}_stop() { rm \"\$STATE/$service/running\"; }
		${service}_remove() { :; }
		${service}_log() { :; }
		${service}_env() { :; }"
done
stub_start() {
	local dir
	dir=$(service_dir "$1")
	[[ $1 != second || -z ${BROKEN:-} ]] || die "second is broken"
	touch "$dir/running" "$dir/data"
}
signal() { :; }
wait_gone() { :; }
kafka_make_keys() { :; }
kafka_keys() { echo "$CACHE/keys"; }
compose() {
	mkdir -p "$CACHE"
	echo "$*" >>"$CACHE/compose.log"
	[[ $1 != up || -z ${BROKEN:-} ]]
}
`

// stubbed is a clone with a services.sh whose services are files.
type stubbed struct {
	*testing.T
	root string
	env  []string
}

func newStubbed(t *testing.T) *stubbed {
	t.Helper()
	s := &stubbed{T: t, root: t.TempDir()}
	head, commands, found := strings.Cut(read(t, "services.sh"), "\n(($# > 0)) || usage\ncommand=$1\n")
	require.True(t, found, "services.sh: the place where it reads the command was not found")
	script := head + stubs + "(($# > 0)) || usage\ncommand=$1\n" + commands
	require.NoError(t, os.MkdirAll(filepath.Dir(s.script()), 0o700))
	require.NoError(t, os.WriteFile(s.script(), []byte(script), 0o700)) //nolint:gosec // a program
	s.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.root, "IDEM_SERVICES_DIR=" + filepath.Join(s.root, "state"),
		"IDEM_CACHE_DIR=" + filepath.Join(s.root, "cache"), "IDEM_SERVICES_ENGINE=native",
	}
	return s
}

func (s *stubbed) script() string { return filepath.Join(s.root, "test", "services", "services.sh") }

// exec runs the script and returns its exit code and its output.
func (s *stubbed) exec(args ...string) (code int, output string) {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), s.script(), args...)
	cmd.Env = s.env
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(s, err)
		return 0, string(out)
	}
	return exit.ExitCode(), string(out)
}

func (s *stubbed) ok(args ...string) {
	s.Helper()
	code, output := s.exec(args...)
	require.Zero(s, code, output)
}

// has returns the files of a service that exist.
func (s *stubbed) has(service string) (files []string) {
	s.Helper()
	list, err := os.ReadDir(filepath.Join(s.root, "state", service))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(s, err)
	}
	for _, f := range list {
		if f.Name() == "running" || f.Name() == "data" {
			files = append(files, f.Name())
		}
	}
	return files
}

// The command run removes the services that it started. Services that were up keep their data.
func TestRun_LeavesWhatWasUp(t *testing.T) {
	kept := []string{"data", "running"}
	for name, c := range map[string]struct {
		up            []string // by hand, before
		env           string
		crash         string // a service that has ended since
		command       string
		code          int
		first, second []string
	}{
		"nothing was up":               {command: "true"},
		"nothing was up, a failure":    {command: "false", code: 1},
		"nothing was up, up fails":     {command: "true", env: "BROKEN=1", code: 1},
		"one was up":                   {up: []string{"first"}, command: "true", first: kept},
		"one was up, a failure":        {up: []string{"first"}, command: "false", code: 1, first: kept},
		"one was up, up fails":         {up: []string{"first"}, command: "true", env: "BROKEN=1", code: 1, first: kept},
		"all were up":                  {up: []string{"first", "second"}, command: "true", first: kept, second: kept},
		"all were up, one has crashed": {up: []string{"first", "second"}, crash: "second", command: "true", first: kept, second: kept},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStubbed(t)
			if c.up != nil {
				s.ok(append([]string{"up"}, c.up...)...)
			}
			if c.crash != "" {
				s.ok("stop", c.crash)
			}
			s.env = append(s.env, c.env)
			code, output := s.exec("run", c.command)
			assert.Equal(t, c.code, code, output)
			assert.Equal(t, c.first, s.has("first"))
			assert.Equal(t, c.second, s.has("second"))
			s.ok("down")
			assert.NoDirExists(t, filepath.Join(s.root, "state"))
		})
	}
}

// While COMMAND runs, all services are up.
func TestRun_StartsAll(t *testing.T) {
	s := newStubbed(t)
	s.ok("up", "second")
	s.ok("run", s.script(), "status")
	assert.Empty(t, s.has("first"))
}

// With a Docker engine the services are one project: it is taken down only if nothing of it was up.
func TestRun_LeavesWhatWasUp_Docker(t *testing.T) {
	down := regexp.MustCompile(`(?m)^down -v$`)
	for name, c := range map[string]struct {
		up   bool
		env  string
		code int
		down bool
	}{
		"nothing was up":           {down: true},
		"nothing was up, up fails": {env: "BROKEN=1", code: 1, down: true},
		"one was up":               {up: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStubbed(t)
			s.env = append(s.env, "IDEM_SERVICES_ENGINE=docker")
			if c.up {
				s.ok("up", "first")
			}
			s.env = append(s.env, c.env)
			code, output := s.exec("run", "true")
			assert.Equal(t, c.code, code, output)
			log, err := os.ReadFile(filepath.Join(s.root, "cache", "compose.log"))
			require.NoError(t, err)
			assert.Equal(t, c.down, down.Match(log), "%s", log)
		})
	}
}

// A drill that would freeze nothing must not go on as if it had.
func TestPause_OfAStoppedService(t *testing.T) {
	s := newStubbed(t)
	s.ok("up", "first")
	s.ok("pause", "first")
	s.ok("resume", "first")
	s.ok("stop", "first")
	for _, command := range []string{"pause", "resume"} {
		code, output := s.exec(command, "first")
		require.Equal(t, 1, code, "%s: %s", command, output)
		require.Contains(t, output, "first does not run", command)
	}
	s.ok("start", "first")
	s.ok("pause", "first")
}
