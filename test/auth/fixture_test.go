package auth

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/kafkaauth"
	"github.com/idem-go/idem/runner"
)

// world is one topic, and one group that consumes it.
type world struct {
	*testenv.SecureKafka
	t            *testing.T
	admin        sarama.ClusterAdmin
	topic, group string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	brokers := testenv.Kafka(t)
	w := &world{SecureKafka: testenv.Secure(t), t: t, admin: testenv.KafkaAdmin(t, brokers), topic: testenv.CreateTopic(t, brokers, 1)}
	w.group = "g-" + w.topic
	require.NoError(t, w.admin.CreateTopic(w.topic+"."+w.group+".dlq", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	return w
}

// user returns a name that no other test has.
func (w *world) user() string { return "user-" + strings.ToLower(rand.Text()[:12]) }

// grant gives a user the rights of a consumer and of a producer of the topic (docs/operations.md),
// or takes them.
func (w *world) grant(user string) {
	w.t.Helper()
	for _, right := range w.rights(user) {
		require.NoError(w.t, w.admin.CreateACLs([]*sarama.ResourceAcls{&right}))
	}
	w.t.Cleanup(func() { w.withdraw(user) })
}

func (w *world) withdraw(user string) {
	w.t.Helper()
	name := "User:" + user
	for _, right := range w.rights(user) {
		_, err := w.admin.DeleteACL(sarama.AclFilter{
			ResourceType: right.ResourceType, ResourceName: &right.ResourceName, ResourcePatternTypeFilter: sarama.AclPatternLiteral,
			Principal: &name, Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny,
		}, false)
		require.NoError(w.t, err)
	}
}

func (w *world) rights(user string) (all []sarama.ResourceAcls) {
	for _, r := range []struct {
		kind      sarama.AclResourceType
		name      string
		operation sarama.AclOperation
	}{
		{sarama.AclResourceTopic, w.topic, sarama.AclOperationRead},
		{sarama.AclResourceTopic, w.topic, sarama.AclOperationWrite},
		{sarama.AclResourceGroup, w.group, sarama.AclOperationRead},
		{sarama.AclResourceTopic, w.topic + "." + w.group + ".dlq", sarama.AclOperationWrite},
	} {
		all = append(all, sarama.ResourceAcls{
			Resource: sarama.Resource{ResourceType: r.kind, ResourceName: r.name, ResourcePatternType: sarama.AclPatternLiteral},
			Acls:     []*sarama.Acl{{Principal: "User:" + user, Host: "*", Operation: r.operation, PermissionType: sarama.AclPermissionAllow}},
		})
	}
	return all
}

// login is access with a user and a password.
func (w *world) login(mechanism, user, password string) access {
	w.t.Helper()
	cfg, err := kafkaauth.TLSFiles{CA: w.CA}.Config()
	require.NoError(w.t, err)
	return access{brokers: w.Login, tls: cfg, mechanism: mechanism, user: user, password: password}
}

// oauth is access with a token.
func (w *world) oauth(source kafkaauth.TokenSource) access {
	a := w.login(bearer, "", "")
	a.token = source
	return a
}

// signed returns a source of new tokens, each with this life.
func (w *world) signed(user string, life time.Duration) kafkaauth.TokenSource {
	return func(context.Context) (kafkaauth.Token, error) {
		end := time.Now().Add(life)
		return kafkaauth.Token{Value: w.Token(w.t, user, end), Expires: end}, nil
	}
}

// certificate writes the certificate of a user to files.
func (w *world) certificate(user string) kafkaauth.TLSFiles {
	w.t.Helper()
	dir := w.t.TempDir()
	files := kafkaauth.TLSFiles{CA: w.CA, Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), ReloadCA: true}
	w.rewrite(files, user)
	return files
}

func (w *world) rewrite(files kafkaauth.TLSFiles, user string) {
	w.t.Helper()
	cert, key := w.Certificate(w.t, user)
	require.NoError(w.t, os.WriteFile(files.Cert, cert, 0o600))
	require.NoError(w.t, os.WriteFile(files.Key, key, 0o600))
}

// mutual is access with a certificate.
func (w *world) mutual(files kafkaauth.TLSFiles) access {
	w.t.Helper()
	cfg, err := files.Config()
	require.NoError(w.t, err)
	return access{brokers: w.Mutual, tls: cfg}
}

// scram adds a user.
func (w *world) scram(user, password string, mechanism sarama.ScramMechanismType) {
	w.t.Helper()
	answers, err := w.admin.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{{
		Name: user, Mechanism: mechanism, Iterations: 4096, Salt: []byte(rand.Text()), Password: []byte(password),
	}})
	require.NoError(w.t, err)
	require.Len(w.t, answers, 1)
	require.Equal(w.t, sarama.ErrNoError, answers[0].ErrorCode)
	w.t.Cleanup(func() {
		_, err := w.admin.DeleteUserScramCredentials([]sarama.AlterUserScramCredentialsDelete{{Name: user, Mechanism: mechanism}})
		require.NoError(w.t, err)
	})
}

// open opens a producer. A broker applies a new user or right a moment later.
func (w *world) open(a access) *consumer.Producer {
	w.t.Helper()
	var p *consumer.Producer
	require.Eventually(w.t, func() (ok bool) {
		var err error
		if p, err = consumer.OpenProducer(a.sarama()); err != nil {
			w.t.Log(err)
		}
		return err == nil
	}, 20*time.Second, 200*time.Millisecond)
	w.t.Cleanup(func() { _ = p.Close() })
	return p
}

// publish publishes events.
func (w *world) publish(p *consumer.Producer, ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		m := &idem.Message{Topic: w.topic, Key: []byte(id), Value: []byte(`{}`), Headers: []idem.Header{
			{Key: "event-id", Value: []byte(id)}, {Key: "event-type", Value: []byte("payment")},
		}}
		ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
		require.NoError(w.t, p.Produce(ctx, m))
		cancel()
	}
}

// lines keeps the log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// worker is a runner under way.
type worker struct {
	lines
	t       *testing.T
	handled sync.Map // IDs
	wires   wires
	stop    context.CancelFunc
	ended   chan error
}

// work starts a runner on a client.
func (w *world) work(c client, a access) *worker {
	w.t.Helper()
	k := &worker{t: w.t, ended: make(chan error, 1)}
	router := idem.NewRouter()
	idem.On(router, "payment", func(_ context.Context, e idem.Event[struct{}]) error {
		if strings.HasPrefix(e.ID, "bad") {
			return idem.Permanent(fmt.Errorf("no account for %s", e.ID))
		}
		k.handled.Store(e.ID, true)
		return nil
	})
	run := c.open(w.t, a, job{
		group: w.group, topic: w.topic, store: memstore.New(memstore.Volatile()),
		log: slog.New(slog.NewTextHandler(&k.lines, nil)), wires: &k.wires,
	}, router)
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	k.stop = stop
	go func() { k.ended <- run(ctx) }()
	w.t.Cleanup(stop)
	return k
}

// until waits for events.
func (k *worker) until(ids ...string) {
	k.t.Helper()
	for _, id := range ids {
		k.soon(func() bool { _, ok := k.handled.Load(id); return ok })
	}
}

func (k *worker) soon(ok func() bool) {
	k.t.Helper()
	require.Eventually(k.t, ok, 40*time.Second, 20*time.Millisecond, "%s", &k.lines)
}

// end stops the consumer in order.
func (k *worker) end() {
	k.t.Helper()
	k.stop()
	require.NoError(k.t, <-k.ended, "%s", &k.lines)
}

// refused waits for Run to end by itself within seconds, and returns the error.
func (k *worker) refused() error {
	k.t.Helper()
	select {
	case err := <-k.ended:
		require.ErrorIs(k.t, err, runner.ErrUnauthorized, "%s", &k.lines)
		return err
	case <-time.After(20 * time.Second):
		require.Fail(k.t, "Run does not end", "%s", &k.lines)
		return nil
	}
}
