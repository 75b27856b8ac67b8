package drills

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// postgres is a server of a drill.
type postgres struct {
	*process
	dir, bin, addr string
}

// pgBin returns the directory of the newest Postgres programs, of version 15 or later.
func pgBin(t testing.TB) (dir string) {
	t.Helper()
	newest := 14
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	require.NoError(t, err)
	for _, d := range dirs {
		version, err := strconv.Atoi(filepath.Base(filepath.Dir(d)))
		if err == nil && version > newest {
			newest, dir = version, d
		}
	}
	if dir == "" {
		missing(t, "PostgreSQL 15 or later is not installed (Debian: apt-get install postgresql)")
	}
	return dir
}

// startPostgres starts a new server with these settings, such as "max_connections=100".
func startPostgres(t testing.TB, settings ...string) *postgres {
	t.Helper()
	p := &postgres{bin: pgBin(t), addr: testenv.FreeAddr(t)}
	p.dir = filepath.Join(directory(t), "data")
	run(t, filepath.Join(p.bin, "initdb"), "-D", p.dir, "-U", "idem", "-A", "trust", "-E", "UTF8",
		"--locale=C.UTF-8", "--no-sync")
	p.serve(t, settings...)
	return p
}

// serve starts the server on its directory, and waits until the server answers.
func (p *postgres) serve(t testing.TB, settings ...string) {
	t.Helper()
	host, port, err := net.SplitHostPort(p.addr)
	require.NoError(t, err)
	args := []string{"-D", p.dir, "-p", port}
	for _, s := range slices.Concat([]string{
		"listen_addresses=" + host, "unix_socket_directories=", "max_connections=100",
		"shared_buffers=64MB", "track_commit_timestamp=on",
	}, settings) {
		args = append(args, "-c", s)
	}
	p.process = start(t, p.dir+".log", filepath.Join(p.bin, "postgres"), args...)
	t.Cleanup(p.crash) // kill would leave shared memory behind
	require.Eventually(t, func() bool {
		conn, err := pgx.Connect(t.Context(), p.url("postgres"))
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return err == nil
	}, 30*time.Second, 50*time.Millisecond, "Postgres does not answer: %s.log", p.dir)
}

func (p *postgres) url(database string) string {
	return "postgres://idem@" + p.addr + "/" + database + "?sslmode=disable&connect_timeout=2"
}

// crash stops the server at once, without a checkpoint.
func (p *postgres) crash() {
	p.signal(syscall.SIGQUIT)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.kill()
	}
}

// exec runs a statement.
func (p *postgres) exec(t testing.TB, database, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.url(database))
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err, sql)
}

// standby starts a standby of this server.
func (p *postgres) standby(t testing.TB, name string, settings ...string) *postgres {
	t.Helper()
	s := &postgres{bin: p.bin, addr: testenv.FreeAddr(t)}
	s.dir = filepath.Join(directory(t), "data")
	host, port, err := net.SplitHostPort(p.addr)
	require.NoError(t, err)
	conn := "host=" + host + " port=" + port + " user=idem application_name=" + name
	run(t, filepath.Join(p.bin, "pg_basebackup"), "-D", s.dir, "-d", conn, "-R", "-c", "fast", "--no-sync")
	s.serve(t, settings...)
	return s
}

// effectsIn counts the rows of table effects, by event.
func effectsIn(t testing.TB, url string) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "SELECT id, count(*) FROM effects GROUP BY id")
	require.NoError(t, err)
	effects := make(map[string]int)
	var id string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		effects[id] = n
		return nil
	})
	require.NoError(t, err)
	return effects
}

// tail returns the last lines of the log of a server.
func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
