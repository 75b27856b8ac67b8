package acls

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/internal/testenv"
)

const (
	password = "acls-secret"
	admin    = "admin"
)

// broker is a Kafka of the test's own. Its authorizer denies each request that no ACL allows.
type broker struct {
	t       *testing.T
	script  string
	env     []string
	address string
	client  sarama.Client
	admin   sarama.ClusterAdmin
	sync    sarama.SyncProducer
	taken   map[string]bool // rights that were taken away once
}

// startBroker starts a Kafka that knows these users. It is stopped in Cleanup, and by a guard
// process if the test ends before that.
func startBroker(t *testing.T, users []string) *broker {
	t.Helper()
	testenv.Kafka(t) // where the shared services can be had, so can this
	script, err := filepath.Abs("../services/services.sh")
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "idem-acls-") //nolint:usetesting // removed by the guard, after the service
	require.NoError(t, err)
	settings := filepath.Join(dir, "settings")
	require.NoError(t, os.WriteFile(settings, []byte(authorizer(users)), 0o600))
	b := &broker{t: t, script: script, taken: make(map[string]bool), env: append(os.Environ(), "IDEM_SERVICES_DIR="+filepath.Join(dir, "services"), "IDEM_KAFKA_SETTINGS="+settings,
		"COMPOSE_PROJECT_NAME="+filepath.Base(dir),
		"IDEM_KAFKA_LOGIN_PORT=", "IDEM_KAFKA_MUTUAL_PORT=", // beside IDEM_KAFKA_PORT
		"JAVA_TOOL_OPTIONS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")} // each lives for seconds only
	port := testenv.FreePort(t)
	b.env = append(b.env, fmt.Sprintf("IDEM_KAFKA_PORT=%d", port), fmt.Sprintf("IDEM_KAFKA_CONTROLLER_PORT=%d", testenv.FreePort(t)))
	b.address = fmt.Sprintf("127.0.0.1:%d", port)
	b.guard(dir)
	b.run("", "up", "kafka")
	b.connect()
	return b
}

// authorizer are the settings of a broker with users and rights.
func authorizer(users []string) string {
	login := fmt.Sprintf("org.apache.kafka.common.security.plain.PlainLoginModule required username=%q password=%q", admin, password)
	for _, user := range append(users, admin) {
		login += fmt.Sprintf(" user_%s=%q", user, password)
	}
	return strings.Join([]string{
		"", "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_SSL,MUTUAL:SSL", "sasl.enabled.mechanisms=PLAIN",
		"sasl.mechanism.inter.broker.protocol=PLAIN", "listener.name.plaintext.plain.sasl.jaas.config=" + login + ";",
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users=User:" + admin + ";User:ANONYMOUS", // the controller's listener has no log-in
		"auto.create.topics.enable=false",
		"log.retention.ms=3600000", "", // less than any retry topic needs
	}, "\n")
}

func (b *broker) guard(dir string) {
	b.t.Helper()
	cmd := exec.Command("bash", "-c", `cat >/dev/null; "$1" down; rm -rf -- "$2"`, "guard", b.script, dir)
	cmd.Env = b.env
	lifeline, err := cmd.StdinPipe()
	require.NoError(b.t, err)
	require.NoError(b.t, cmd.Start())
	b.t.Cleanup(func() {
		_ = lifeline.Close()
		_ = cmd.Wait() // best effort
	})
}

// run calls the script, which is never interrupted: a half-started service would have no owner.
func (b *broker) run(stdin string, args ...string) {
	b.t.Helper()
	cmd := exec.Command(b.script, args...)
	cmd.Env, cmd.Stdin = b.env, strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	require.NoError(b.t, err, "services.sh %v: %s", args, out)
}

// config is how a user reaches the broker.
func (b *broker) config(user string) consumer.Config {
	return consumer.Config{
		Brokers: []string{b.address}, SASL: &consumer.SASL{Mechanism: "PLAIN", User: user, Password: password}, AllowInsecure: true,
	}
}

// connect connects as the administrator. A broker in a container may need a moment.
func (b *broker) connect() {
	b.t.Helper()
	cfg := b.config(admin)
	cfg.Group, cfg.Topics = "admin", []string{"unused"}
	sc, err := consumer.DefaultSaramaConfig(cfg)
	require.NoError(b.t, err)
	require.Eventually(b.t, func() bool {
		b.client, err = sarama.NewClient(cfg.Brokers, sc)
		return err == nil
	}, time.Minute, 200*time.Millisecond)
	b.t.Cleanup(func() { _ = b.client.Close() })
	b.admin, err = sarama.NewClusterAdminFromClient(b.client)
	require.NoError(b.t, err)
	b.sync, err = sarama.NewSyncProducerFromClient(b.client)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = b.sync.Close() })
}

func (b *broker) createTopics(names ...string) {
	b.t.Helper()
	for _, name := range names {
		forever := "-1"
		require.NoError(b.t, b.admin.CreateTopic(name, &sarama.TopicDetail{
			NumPartitions: 1, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &forever},
		}, false))
	}
}

// awaitGroups waits until the broker has made its topic of offsets, and read it.
func (b *broker) awaitGroups() {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		_, err := b.admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0}})
		return err == nil
	}, 30*time.Second, 50*time.Millisecond)
}

// produce writes an event as the administrator.
func (b *broker) produce(topic, id string) {
	b.t.Helper()
	_, _, err := b.sync.SendMessage(&sarama.ProducerMessage{
		Topic: topic, Key: sarama.StringEncoder(id), Value: sarama.StringEncoder(`{}`),
		Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte(id)}, {Key: []byte("event-type"), Value: []byte("payment")}},
	})
	require.NoError(b.t, err)
}

// documented are the commands of docs/operations.md, in the order in which they stand there.
func documented(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	commands := regexp.MustCompile(`(?m)^kafka-acls --bootstrap-server localhost:9092 .*$`).FindAllString(string(text), -1)
	require.NotEmpty(t, commands)
	return commands
}

var user = regexp.MustCompile(`--allow-principal User:([\w-]+)`)

// usersOf are the principals of the commands, each once.
func usersOf(commands []string) (users []string) {
	known := map[string]bool{}
	for _, c := range commands {
		if name := user.FindStringSubmatch(c)[1]; !known[name] {
			known[name] = true
			users = append(users, name)
		}
	}
	return users
}

// rightsOf are the single rights that commands give, such as "relay Write topic shipments".
func rightsOf(t *testing.T, commands []string) (rights []string) {
	t.Helper()
	for _, c := range commands {
		var principal string
		var operations, resources []string
		words := strings.Fields(c)[3:] // after the name and the brokers
		for len(words) > 0 {
			option, value := words[0], ""
			if words = words[1:]; len(words) > 0 && !strings.HasPrefix(words[0], "--") {
				value, words = words[0], words[1:]
			}
			switch option {
			case "--add", "--resource-pattern-type":
			case "--allow-principal":
				principal = strings.TrimPrefix(value, "User:")
			case "--operation":
				operations = append(operations, value)
			case "--topic", "--group":
				resources = append(resources, strings.TrimPrefix(option, "--")+" "+value)
			case "--cluster":
				resources = append(resources, "cluster kafka-cluster")
			default:
				require.Fail(t, "an option that this test does not know", "%s: %s", option, c)
			}
		}
		for _, operation := range operations {
			for _, resource := range resources {
				rights = append(rights, principal+" "+operation+" "+resource)
			}
		}
	}
	return rights
}

// grant runs commands with Kafka's own tool, two at a time.
func (b *broker) grant(commands ...string) {
	b.t.Helper()
	logIn := "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=\"" +
		admin + "\" password=\"" + password + "\";\n"
	var running sync.WaitGroup
	slots, failures := make(chan struct{}, 2), make(chan string, len(commands))
	for _, c := range commands {
		_, args, _ := strings.Cut(c, "--bootstrap-server localhost:9092 ")
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			cmd := exec.Command(b.script, append([]string{"kafka", "acls", "--command-config", "/dev/stdin"}, strings.Fields(args)...)...)
			cmd.Env, cmd.Stdin = b.env, strings.NewReader(logIn)
			if out, err := cmd.CombinedOutput(); err != nil {
				failures <- fmt.Sprintf("%s: %v: %s", c, err, out)
			}
		})
	}
	running.Wait()
	close(failures)
	for f := range failures {
		require.Fail(b.t, f)
	}
}

var (
	operations = map[string]sarama.AclOperation{
		"Read": sarama.AclOperationRead, "Write": sarama.AclOperationWrite, "Describe": sarama.AclOperationDescribe, "Delete": sarama.AclOperationDelete,
		"Create": sarama.AclOperationCreate, "DescribeConfigs": sarama.AclOperationDescribeConfigs,
		"AlterConfigs": sarama.AclOperationAlterConfigs,
	}
	resources = map[string]sarama.AclResourceType{"topic": sarama.AclResourceTopic, "group": sarama.AclResourceGroup, "cluster": sarama.AclResourceCluster}
)

// without runs fn while a user lacks one right, such as "Read topic payments", in any ACL.
func (b *broker) without(principal, right string, fn func()) {
	b.t.Helper()
	b.taken[principal+" "+right] = true
	resource, acl := b.take(principal, right)
	defer func() {
		b.add(resource, acl)
		b.settle()
	}()
	b.settle()
	fn()
}

// take removes the one ACL of a user with this right, and returns it.
func (b *broker) take(principal, right string) (sarama.Resource, sarama.Acl) {
	b.t.Helper()
	words := strings.Fields(right)
	name := "User:" + principal
	gone, err := b.admin.DeleteACL(sarama.AclFilter{
		ResourceType: resources[words[1]], ResourceName: &words[2], ResourcePatternTypeFilter: sarama.AclPatternAny, Principal: &name,
		Operation: operations[words[0]], PermissionType: sarama.AclPermissionAllow,
	}, false)
	require.NoError(b.t, err)
	require.Len(b.t, gone, 1, "%s has no ACL %q of its own", principal, right)
	return gone[0].Resource, gone[0].Acl
}

// allow runs fn while a user has one more right, as without does.
func (b *broker) allow(principal, right string, fn func()) {
	b.t.Helper()
	words := strings.Fields(right)
	acl := sarama.Acl{Principal: "User:" + principal, Host: "*", Operation: operations[words[0]], PermissionType: sarama.AclPermissionAllow}
	b.add(sarama.Resource{ResourceType: resources[words[1]], ResourceName: words[2], ResourcePatternType: sarama.AclPatternLiteral}, acl)
	b.settle()
	defer func() {
		b.take(principal, right)
		b.settle()
	}()
	fn()
}

func (b *broker) add(resource sarama.Resource, acl sarama.Acl) {
	b.t.Helper()
	require.NoError(b.t, b.admin.CreateACLs([]*sarama.ResourceAcls{{Resource: resource, Acls: []*sarama.Acl{&acl}}}))
}

// deleteTopics returns when the broker no longer reports the topics.
func (b *broker) deleteTopics(names ...string) {
	b.t.Helper()
	for _, name := range names {
		require.NoError(b.t, b.admin.DeleteTopic(name))
	}
	b.settle()
}

// settle waits until the broker has applied the changes. The broker reads its log of metadata in a
// thread of its own.
func (b *broker) settle() {
	b.t.Helper()
	probe := sarama.Resource{ResourceType: sarama.AclResourceTopic, ResourceName: fmt.Sprintf("settle-%d", rand.Uint64()), ResourcePatternType: sarama.AclPatternLiteral}
	b.add(probe, sarama.Acl{Principal: "User:none", Host: "*", Operation: sarama.AclOperationRead, PermissionType: sarama.AclPermissionAllow})
	require.Eventually(b.t, func() bool {
		found, err := b.admin.ListAcls(sarama.AclFilter{ResourceType: sarama.AclResourceTopic, ResourceName: &probe.ResourceName,
			ResourcePatternTypeFilter: sarama.AclPatternLiteral, Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny})
		return err == nil && len(found) == 1
	}, 20*time.Second, 20*time.Millisecond)
}
