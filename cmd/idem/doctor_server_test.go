//go:build unix

package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/doctor"
	"github.com/idem-go/idem/internal/testenv"
)

// pgServer is a Postgres of the test's own, for settings that a shared one must not have.
type pgServer struct {
	*testing.T
	bin, data, port string
	credential      *syscall.Credential // Postgres refuses to run as root
}

// missing skips a test that needs a missing program, or fails the test if services are required.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("IDEM_REQUIRE_SERVICES") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// newPgServer makes the data of a server, or skips without the programs of a server. The judgements
// are tested without them as well.
func newPgServer(t *testing.T) *pgServer {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		missing(t, "no programs of a Postgres server on this host")
	}
	slices.Sort(found)
	dir, err := os.MkdirTemp("", "idem-doctor") //nolint:usetesting // the directories above t.TempDir are closed to other users
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	_, port, err := net.SplitHostPort(testenv.FreeAddr(t))
	require.NoError(t, err)
	s := &pgServer{T: t, bin: filepath.Dir(found[len(found)-1]), data: filepath.Join(dir, "data"), port: port}
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			missing(t, "no user postgres, and root may not run a server")
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		require.NoError(t, err1)
		require.NoError(t, err2)
		s.credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		require.NoError(t, os.Chown(dir, int(uid), int(gid)))
	}
	s.run("initdb", "-D", s.data, "-U", "idem", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	return s
}

func (s *pgServer) run(program string, args ...string) {
	s.Helper()
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.credential}
	// pg_ctl leaves the server behind with its output: a pipe would be waited for.
	log, err := os.CreateTemp(s.TempDir(), program)
	require.NoError(s, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()
	text, _ := os.ReadFile(log.Name())
	require.NoError(s, err, "%s: %s", program, text)
}

// start runs the server with these settings until stop, or the end of the test.
func (s *pgServer) start(settings ...string) (stop func()) {
	s.Helper()
	options := "-p " + s.port + " -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c shared_buffers=16MB -c max_connections=20"
	for _, o := range settings {
		options += " -c " + o
	}
	s.run("pg_ctl", "-D", s.data, "-l", filepath.Join(filepath.Dir(s.data), "log"), "-w", "-t", "60", "-o", options, "start")
	running := true
	stop = func() {
		if running {
			running = false
			s.run("pg_ctl", "-D", s.data, "-m", "fast", "-w", "-t", "60", "stop")
		}
	}
	s.Cleanup(stop)
	return stop
}

// Faults that only a server of the test's own can have (P-18, P-26, P-08): no fsync, no full pages,
// no room, a standby.
func TestDoctor_ServerPlanted(t *testing.T) {
	testenv.Postgres(t) // only where services are wanted at all
	s := newPgServer(t)
	url := "postgres://idem@127.0.0.1:" + s.port + "/postgres?sslmode=disable"
	base := []string{"--store", url, "-G", "billing"}
	stop := s.start()
	(&pgPlace{T: t}).migrate(url)
	again := func(settings ...string) func() {
		return func() {
			stop()
			stop = s.start(settings...)
		}
	}
	for _, p := range []struct {
		plant
		settings []string
	}{
		{plant{name: "fsync", id: "postgres.fsync", want: doctor.Bad, says: "-c fsync=on"}, []string{"fsync=off"}},
		{plant{name: "full pages", id: "postgres.full_page_writes", want: doctor.Bad, says: "torn"}, []string{"full_page_writes=off"}},
		{plant{name: "autovacuum", id: "postgres.autovacuum", want: doctor.Warn, says: "dead rows stay"}, []string{"autovacuum=off"}},
		{plant{name: "connections", id: "postgres.connections", want: doctor.Bad, says: "the server has 3", args: []string{"--pool-size", "5"}},
			[]string{"max_connections=6", "max_wal_senders=0"}},
		{plant{name: "commits", id: "postgres.commit", want: doctor.Bad, says: "for the server"}, []string{"synchronous_commit=off"}},
	} {
		t.Run(p.name, func(t *testing.T) {
			p.found(t, base, again(p.settings...))
			again()()
		})
	}
	t.Run("ordinary role", func(t *testing.T) { s.ordinaryRole(t, url) })
	t.Run("standby", func(t *testing.T) {
		plant{id: "postgres.standby", want: doctor.Bad, says: "no event can be recorded", also: []string{"postgres.store"}}.found(t, base, func() {
			stop()
			require.NoError(t, os.WriteFile(filepath.Join(s.data, "standby.signal"), nil, 0o600))
			stop = s.start()
		})
	})
}

// ordinaryRole looks with the role of the workers, which may not see the sessions of other roles, at a
// server with a standby and sessions of another role (rule 46, P-14).
func (s *pgServer) ordinaryRole(t *testing.T, url string) {
	place := &pgPlace{T: t, url: url}
	place.exec(url, "CREATE ROLE worker LOGIN", "CREATE DATABASE work OWNER worker")
	t.Cleanup(func() { place.exec(url, "DROP DATABASE work WITH (FORCE)", "DROP ROLE worker") })
	work := strings.NewReplacer("idem@", "worker@", "/postgres?", "/work?").Replace(url)
	place.migrate(work)
	base := []string{"--store", work, "-G", "billing", "--pool-size", "4"}
	r := examined(t, base...)
	require.Equal(t, doctor.OK, r.worst("postgres.connections").Verdict)
	require.Equal(t, doctor.OK, r.worst("postgres.replication").Verdict)
	for range 14 { // of 17
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		defer conn.Close(context.Background())
	}
	standby, err := pgconn.Connect(t.Context(), url+"&replication=true") // a sender without a position
	require.NoError(t, err)
	defer standby.Close(context.Background())

	r = examined(t, base...)
	require.Equal(t, doctor.Warn, r.worst("postgres.connections").Verdict, "%+v", r.worst("postgres.connections"))
	require.Contains(t, r.worst("postgres.connections").Detail, "others use 14 of them")
	require.Equal(t, doctor.Unknown, r.worst("postgres.replication").Verdict, "%+v", r.worst("postgres.replication"))
	require.Equal(t, "GRANT pg_read_all_stats TO \"worker\"", r.worst("postgres.replication").Remedy)
	place.exec(url, r.worst("postgres.replication").Remedy)
	r = examined(t, base...)
	require.Contains(t, r.worst("postgres.connections").Detail, "others use 14 of them")
	require.Equal(t, doctor.Warn, r.worst("postgres.replication").Verdict, "%+v", r.worst("postgres.replication"))
	require.Contains(t, r.worst("postgres.replication").Detail, "none synchronous")
}
