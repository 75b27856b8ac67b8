package scaffold

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/internal/testenv"
)

func service(store string) Service {
	return Service{Module: "example.com/shop/payments", Topic: "paid", Store: store, Version: "v0.1.0"}
}

func TestWrite_Refused(t *testing.T) {
	full := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(full, "main.go"), nil, 0o600))
	for name, c := range map[string]struct {
		dir    string
		change func(*Service)
		wanted string
	}{
		"module":                          {t.TempDir(), func(s *Service) { s.Module = "Pay ments" }, "no module path"},
		"topic":                           {t.TempDir(), func(s *Service) { s.Topic = "a b" }, "no name of a topic"},
		"dots":                            {t.TempDir(), func(s *Service) { s.Topic = ".." }, "no name of a topic"},
		"dead letters, of a long topic":   {t.TempDir(), func(s *Service) { s.Topic = strings.Repeat("t", 235) }, "the service needs a topic"},
		"dead letters, of a long service": {t.TempDir(), func(s *Service) { s.Module = strings.Repeat("m", 249) }, "the service needs a topic"},
		"dead letters, of a tilde":        {t.TempDir(), func(s *Service) { s.Module = "example.com/pay~ments/v2" }, "the service needs a topic"},
		"no clone":                        {t.TempDir(), func(s *Service) { s.Replace = t.TempDir() }, "is no clone of Idem"},
		"another":                         {t.TempDir(), func(s *Service) { s.Replace = "../.." }, "another module"},
		"store":                           {t.TempDir(), func(s *Service) { s.Store = "mongo" }, "use sqlite or postgres"},
		"development":                     {t.TempDir(), func(s *Service) { s.Version = "(devel)" }, "--replace"},
		"pseudo":                          {t.TempDir(), func(s *Service) { s.Version = "v0.0.0-20261127001234-0123456789ab" }, "--replace"},
		"files":                           {full, func(*Service) {}, "give an empty directory"},
	} {
		s := service(SQLite)
		c.change(&s)
		before, err := os.ReadDir(c.dir)
		require.NoError(t, err)
		_, err = Write(c.dir, s)
		require.ErrorContains(t, err, c.wanted, name)
		after, err := os.ReadDir(c.dir)
		require.NoError(t, err)
		require.Len(t, after, len(before), "%s: nothing is written", name)
	}
}

// The topics of a service may be as long as Kafka allows. A tilde in front of its name is in no topic.
func TestCheck_Topics(t *testing.T) {
	s := service(SQLite)
	s.Topic = strings.Repeat("t", 249-len(".payments.retry"))
	require.NoError(t, s.Check())
	s.Module = "example.com/a~b/payments"
	require.NoError(t, s.Check())
}

func TestWrite_Release(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	files, err := Write(dir, service(Postgres))
	require.NoError(t, err)
	require.Contains(t, files, ".gitignore")
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	require.Contains(t, string(mod), "require github.com/idem-go/idem v0.1.0\n")
	require.NotContains(t, string(mod), "replace")
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NotContains(t, string(text), "{{", name)
		require.NotContains(t, string(text), "<no value>", name)
	}
}

// make down removes the topic. A store that keeps the positions in it would refuse the next start,
// so the store goes too: the file of SQLite, or the volume of Postgres.
func TestMakefile_DownRemovesTheStore(t *testing.T) {
	for store, want := range map[string]string{
		SQLite:   "\tdocker compose down --volumes\n\trm -f payments.db payments.db-wal payments.db-shm\n\n",
		Postgres: "\tdocker compose down --volumes\n\n",
	} {
		content, err := render(service(store))
		require.NoError(t, err)
		_, down, found := strings.Cut(string(content["Makefile"]), "\ndown: ")
		require.True(t, found, store)
		_, commands, _ := strings.Cut(down, "\n")
		require.Equal(t, want+"test:", commands[:len(want)+len("test:")], store)
	}
}

// A store refuses a group that it does not know, on topics that it knows.
func TestReadme_AnotherGroup(t *testing.T) {
	content, err := render(service(SQLite))
	require.NoError(t, err)
	require.Contains(t, string(content["README.md"]), "Another name on the same store is refused: `idem scope create`")
}

func TestNameOf(t *testing.T) {
	for module, want := range map[string]string{
		"example.com/shop": "shop", "example.com/shop/v2": "shop", "shop": "shop", "v2": "v2", "example.com/v2go": "v2go",
	} {
		require.Equal(t, want, nameOf(module), module)
	}
}

// The first line may end as on Windows.
func TestIsLibrary(t *testing.T) {
	for mod, want := range map[string]bool{
		"module " + library + "\n\ngo 1.26\n":                            true,
		"module " + library + "\r\n\r\ngo 1.26\r\n":                      true,
		"module " + library:                                              true,
		"module " + library + "/cmd/idem\r\n":                            false,
		"module example.com/a\n\nrequire (\n" + library + " v0.1.0\n)\n": false,
		"": false,
	} {
		require.Equal(t, want, isLibrary([]byte(mod)), "%q", mod)
	}
}

// A clone may be in a folder with spaces in its name.
func TestReplaceWithSpaces(t *testing.T) {
	clone := filepath.Join(t.TempDir(), "a clone")
	require.NoError(t, os.Mkdir(clone, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(clone, "go.mod"), []byte("module "+library+"\n"), 0o600))
	dir, s := t.TempDir(), service(SQLite)
	s.Version, s.Replace = "", clone
	_, err := Write(dir, s)
	require.NoError(t, err)
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), `"Path": "`+clone+`"`)
	docker, err := os.ReadFile(filepath.Join(dir, "Dockerfile"))
	require.NoError(t, err)
	require.NotContains(t, string(docker), "go mod download", "the clone is not in the image")
}

// The service builds, passes its own test, and handles a payment once that came twice.
func TestService_SQLite(t *testing.T) {
	dir := buildService(t, SQLite, nil)
	file := filepath.Join(t.TempDir(), "balances.db")
	runService(t, dir, file)
}

func TestService_Postgres(t *testing.T) {
	url := testenv.Postgres(t)
	dir := buildService(t, Postgres, []string{"DATABASE=" + url})
	runService(t, dir, url)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	var cents int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT cents FROM balances WHERE account = 'ann'").Scan(&cents))
	require.Equal(t, 250, cents)
	endWithTwoSignals(t, dir)
}

// endWithTwoSignals begins to stop a service whose handler waits for a row, which takes as long as
// the handler may take, and ends the service with a further signal.
func endWithTwoSignals(t *testing.T, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	url := testenv.Postgres(t)
	look, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer look.Close(context.WithoutCancel(ctx))
	_, err = look.Exec(ctx, "CREATE TABLE balances (account text PRIMARY KEY, cents bigint NOT NULL)")
	require.NoError(t, err)
	hold, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer hold.Close(context.WithoutCancel(ctx))
	_, err = hold.Exec(ctx, "BEGIN; INSERT INTO balances VALUES ('ann', 1)")
	require.NoError(t, err)

	client, brokers := openKafka(t)
	p := startService(ctx, t, dir, brokers, url, testenv.FreeAddr(t))
	pay(ctx, t, client, `{"event_id":"1","type":"payment.completed","account":"ann","cents":250}`)
	require.Eventually(t, func() bool {
		var waits bool
		err := look.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits)
		return err == nil && waits
	}, 30*time.Second, 20*time.Millisecond, "no handler waits for the row")
	every := time.NewTicker(100 * time.Millisecond)
	defer every.Stop()
	for ended := false; !ended; {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.stopped:
			ended = true
		case <-every.C:
		}
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.True(t, status.Signaled(), "the service went on to stop in order: %s", p.cmd.ProcessState)
	require.Equal(t, syscall.SIGTERM, status.Signal())
}

func buildService(t *testing.T, store string, env []string) (dir string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds a program: not with -short")
	}
	clone, err := filepath.Abs("../../../..")
	require.NoError(t, err)
	dir = filepath.Join(t.TempDir(), "service")
	s := service(store)
	s.Version, s.Replace = "", clone
	_, err = Write(dir, s)
	require.NoError(t, err)
	for _, args := range [][]string{
		{"mod", "tidy"}, {"vet", "./..."}, {"test", "-count=1", "./..."}, {"build", "-o", "payments", "."},
		{"mod", "vendor"}, {"list", "-mod=vendor", "./..."}, // as the Dockerfile says
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(append(os.Environ(), "GOWORK=off", "GOFLAGS="), env...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %v: %s", args, out)
	}
	return dir
}

// runService delivers a payment twice and a payment without an amount, and looks at the offsets,
// the dead letters and the probes. Kafka is in the process.
func runService(t *testing.T, dir, database string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, brokers := openKafka(t)
	address := testenv.FreeAddr(t)
	p := startService(ctx, t, dir, brokers, database, address)
	pay(ctx, t, client,
		`{"event_id":"1","type":"payment.completed","account":"ann","cents":250}`,
		`{"event_id":"1","type":"payment.completed","account":"ann","cents":250}`,
		`{"event_id":"2","type":"payment.completed","account":"ann"}`,
	)
	dead := client.PollRecords(ctx, 1)
	require.NoError(t, dead.Err0())
	require.Contains(t, string(dead.Records()[0].Value), `"event_id":"2"`, "the copy of 1 is no dead letter")
	require.JSONEq(t, `{"live":true}`, probe(ctx, address, "/livez"))
	require.Contains(t, probe(ctx, address, "/readyz"), `"ready":true`)

	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	<-p.stopped
	require.NoError(t, p.exit, "%s", &p.log)
}

// openKafka starts a Kafka in the process. Its client reads the dead letters of the service.
func openKafka(t *testing.T) (client *kgo.Client, brokers []string) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "paid"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	brokers = cluster.ListenAddrs()
	client, err = kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics("paid.payments.dlq"), kgo.UnknownTopicRetries(-1))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client, brokers
}

// process is a service that was started. exit and log may be read once stopped is closed.
type process struct {
	cmd     *exec.Cmd
	log     bytes.Buffer
	exit    error
	stopped chan struct{}
}

// startService starts the service. It is killed if it still runs at the end of the test.
func startService(ctx context.Context, t *testing.T, dir string, brokers []string, database, address string) *process {
	t.Helper()
	p := &process{cmd: exec.CommandContext(ctx, filepath.Join(dir, "payments")), stopped: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "KAFKA_BROKERS="+brokers[0], "DATABASE="+database, "ADDRESS="+address)
	p.cmd.Stderr = &p.log
	require.NoError(t, p.cmd.Start())
	go func() {
		p.exit = p.cmd.Wait()
		close(p.stopped)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.stopped
	})
	return p
}

// pay produces events.
func pay(ctx context.Context, t *testing.T, client *kgo.Client, values ...string) {
	t.Helper()
	for _, value := range values {
		r := &kgo.Record{Topic: "paid", Key: []byte("ann"), Value: []byte(value)}
		require.NoError(t, client.ProduceSync(ctx, r).FirstErr())
	}
}

func probe(ctx context.Context, address, path string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
