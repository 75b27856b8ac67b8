// Package compose checks that the two ways to start the services, docker-compose.yml and
// test/services/services.sh, start the same ones. A test that passes with one and fails with the
// other costs a day.
//
// It is a module of its own because the compose parser brings many dependencies.
package compose

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// load reads docker-compose.yml with env as the only environment: IDEM_*_PORT of the caller must
// not decide the test.
func load(t *testing.T, env ...string) *types.Project {
	t.Helper()
	return loadWith(t, nil, env...)
}

// loadWith reads it with those profiles.
func loadWith(t *testing.T, profiles []string, env ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml")}, cli.WithEnv(env), cli.WithProfiles(profiles))
	require.NoError(t, err)
	project, err := options.LoadProject(t.Context())
	require.NoError(t, err)
	return project
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{root, "test", "services"}, path...)...))
	require.NoError(t, err)
	return string(b)
}

// defaultPorts returns the defaults of services.sh by variable name: IDEM_KAFKA_PORT, "19092".
func defaultPorts(t *testing.T) map[string]string {
	t.Helper()
	ports := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^export (IDEM_\w+_PORT)=\$\{(\w+):-(\d+)\}$`).FindAllStringSubmatch(read(t, "services.sh"), -1) {
		require.Equal(t, m[1], m[2], "services.sh: a default for another variable")
		ports[m[1]] = m[3]
	}
	require.Len(t, ports, 6, "services.sh: the lines with the default ports were not found")
	return ports
}

// array returns the elements of an array that services.sh declares one to a line.
func array(t *testing.T, name string) []string {
	t.Helper()
	block := regexp.MustCompile(`(?ms)^` + name + `=\(\n(.*?)^\)`).FindStringSubmatch(read(t, "services.sh"))
	require.NotNil(t, block, "services.sh: no array %s", name)
	var elements []string
	for line := range strings.Lines(block[1]) {
		line, _, _ = strings.Cut(line, " #")
		if line = strings.Trim(strings.TrimSpace(line), `"`); line != "" {
			elements = append(elements, line)
		}
	}
	require.NotEmpty(t, elements)
	return elements
}

func TestServices_sameAsScript(t *testing.T) {
	m := regexp.MustCompile(`(?m)^SERVICES=\((.*)\)$`).FindStringSubmatch(read(t, "services.sh"))
	require.NotNil(t, m, "services.sh: no SERVICES")
	assert.ElementsMatch(t, strings.Fields(m[1]), load(t).ServiceNames())
}

func TestServices_pinnedHealthCheckedAndOnLoopback(t *testing.T) {
	pinned := regexp.MustCompile(`:v?\d+\.\d+(\.\d+)?(-[a-z0-9.]+)?$`)
	for name, s := range loadWith(t, []string{observability}).Services {
		assert.Regexp(t, pinned, s.Image, "%s: the image must be pinned to an exact version", name)
		if assert.NotNil(t, s.HealthCheck, "%s: `up --wait` needs a health check", name) {
			assert.False(t, s.HealthCheck.Disable, name)
			assert.NotEmpty(t, s.HealthCheck.Test, name)
		}
		assert.NotEmpty(t, s.Ports, name)
		for _, p := range s.Ports {
			assert.Equal(t, "127.0.0.1", p.HostIP, "%s: port %s must be bound to loopback", name, p.Published)
		}
		assert.Empty(t, s.NetworkMode, "%s: host networking would get round the port bindings", name)
	}
}

func TestPorts_sameAsScript(t *testing.T) {
	defaults := defaultPorts(t)
	project := load(t)
	for name, variable := range map[string]string{
		"kafka": "IDEM_KAFKA_PORT", "postgres": "IDEM_POSTGRES_PORT", "redis": "IDEM_REDIS_PORT",
		"dynamodb": "IDEM_DYNAMODB_PORT",
		"mariadb":  "IDEM_MARIADB_PORT",
	} {
		ports := project.Services[name].Ports
		if assert.Len(t, ports, 1, name) {
			assert.Equal(t, defaults[variable], ports[0].Published, name)
		}
		moved := load(t, variable+"=12345").Services[name].Ports
		if assert.Len(t, moved, 1, name) {
			assert.Equal(t, "12345", moved[0].Published, "%s: %s must move the port", name, variable)
		}
	}
}

func TestMariaDB_settingsSameAsScript(t *testing.T) {
	want := []string{"mariadbd"}
	for _, setting := range array(t, "MARIADB_SETTINGS") {
		want = append(want, "--"+setting)
	}
	assert.Equal(t, want, []string(load(t).Services["mariadb"].Command))
}

func TestKafka_versionSameAsPom(t *testing.T) {
	var pom struct {
		Version string `xml:"properties>kafka.version"`
	}
	require.NoError(t, xml.Unmarshal([]byte(read(t, "kafka", "pom.xml")), &pom))
	require.NotEmpty(t, pom.Version)
	assert.Equal(t, "apache/kafka:"+pom.Version, load(t).Services["kafka"].Image)
}

func TestDynamoDB_sameAsScript(t *testing.T) {
	var pom struct {
		Version string `xml:"properties>dynamodb.version"`
	}
	require.NoError(t, xml.Unmarshal([]byte(read(t, "dynamodb", "pom.xml")), &pom))
	require.NotEmpty(t, pom.Version)
	s := load(t).Services["dynamodb"]
	assert.Equal(t, "amazon/dynamodb-local:"+pom.Version, s.Image)
	start := regexp.MustCompile(`(?s)\ndynamodb_start\(\) \{\n(.*?)\n\}`).FindStringSubmatch(read(t, "services.sh"))
	require.NotNil(t, start, "services.sh: no dynamodb_start")
	for _, option := range regexp.MustCompile(` -[a-zA-Z]\w+`).FindAllString(start[1], -1) {
		switch option = option[1:]; option {
		case "-cp", "-port", "-Didem", "-Djava": // where things are, and the container has a port of its own
		default:
			assert.Contains(t, s.Command, option)
		}
	}
	for _, option := range s.Command {
		if option != "DynamoDBLocal.jar" && option != "-jar" {
			assert.Contains(t, start[1], strings.TrimSuffix(option, "./DynamoDBLocal_lib"))
		}
	}
}

func TestKafka_settingsSameAsTemplate(t *testing.T) {
	ports := defaultPorts(t)
	template := strings.NewReplacer("@PORT@", ports["IDEM_KAFKA_PORT"], "@CONTROLLER_PORT@", ports["IDEM_KAFKA_CONTROLLER_PORT"]).
		Replace(read(t, "kafka", "server.properties.in"))
	want := map[string]string{}
	for line := range strings.Lines(template) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		require.True(t, ok, line)
		want["KAFKA_"+strings.ToUpper(strings.ReplaceAll(key, ".", "_"))] = value
	}

	got := map[string]string{}
	for key, value := range load(t).Services["kafka"].Environment {
		require.NotNil(t, value, key)
		got[key] = *value
	}
	heap := strings.Fields(got["KAFKA_HEAP_OPTS"])
	require.NotEmpty(t, heap)
	for _, option := range heap {
		assert.Contains(t, read(t, "services.sh"), option)
	}
	delete(got, "KAFKA_HEAP_OPTS")

	// A container's port is published from all of its own addresses, and its data is elsewhere.
	want["KAFKA_LISTENERS"] = strings.Replace(want["KAFKA_LISTENERS"], "127.0.0.1", "0.0.0.0", 1)
	want["KAFKA_LOG_DIRS"] = "/var/lib/kafka/data"
	assert.Equal(t, want, got)
}

func TestPostgres_settingsSameAsScript(t *testing.T) {
	s := load(t).Services["postgres"]
	require.Equal(t, "postgres", s.Command[0])
	var got []string
	for _, argument := range s.Command[1:] {
		got = append(got, strings.TrimPrefix(argument, "-c"))
	}
	assert.ElementsMatch(t, array(t, "POSTGRES_SETTINGS"), got)
	for _, name := range []string{"POSTGRES_USER", "POSTGRES_PASSWORD", "POSTGRES_DB"} {
		value := s.Environment[name]
		if assert.NotNil(t, value, name) {
			assert.Equal(t, "idem", *value, name)
		}
	}
}

func TestRedis_settingsSameAsScript(t *testing.T) {
	s := load(t).Services["redis"]
	want := []string{"redis-server", "--save", ""}
	for _, setting := range array(t, "REDIS_SETTINGS") {
		name, value, _ := strings.Cut(setting, " ")
		want = append(want, "--"+name, value)
	}
	assert.Equal(t, want, []string(s.Command))
}

// The further listeners of Kafka are in no file: services.sh adds them to docker-compose.yml.
func TestKafka_secureListeners(t *testing.T) {
	script := filepath.Join(root, "test", "services", "services.sh")
	cmd := exec.CommandContext(t.Context(), script, "compose")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/home/user", "IDEM_KAFKA_PORT=12000", "IDEM_KAFKA_MUTUAL_PORT=12345"}
	added, err := cmd.Output()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "added.yml")
	require.NoError(t, os.WriteFile(file, added, 0o600))
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml"), file}, cli.WithEnv([]string{"IDEM_KAFKA_PORT=12000"}))
	require.NoError(t, err)
	project, err := options.LoadProject(t.Context())
	require.NoError(t, err)
	s := project.Services["kafka"]
	var ports []string
	for _, p := range s.Ports {
		ports = append(ports, p.HostIP+":"+p.Published)
		assert.Equal(t, p.Published, strconv.Itoa(int(p.Target)), "clients are sent on to the advertised port")
	}
	assert.ElementsMatch(t, []string{"127.0.0.1:12000", "127.0.0.1:12010", "127.0.0.1:12345"}, ports)
	require.Len(t, s.Volumes, 2)
	assert.Equal(t, "/home/user/.cache/idem/run/kafka-keys-12000", s.Volumes[1].Source)
	assert.True(t, s.Volumes[1].ReadOnly)
	assert.False(t, s.HealthCheck.Disable)
	env := func(name string) string {
		if assert.NotNil(t, s.Environment[name], name) {
			return *s.Environment[name]
		}
		return ""
	}
	assert.Equal(t, "PLAINTEXT://0.0.0.0:12000,LOGIN://0.0.0.0:12010,MUTUAL://0.0.0.0:12345,CONTROLLER://127.0.0.1:19093", env("KAFKA_LISTENERS"))
	assert.NotContains(t, env("KAFKA_ADVERTISED_LISTENERS"), "SSL://", "the image wants settings of its own then")
	assert.Equal(t, `RULE:^CN=([^,]+).*$/$1/`, env("KAFKA_SSL_PRINCIPAL_MAPPING_RULES"))
	assert.Equal(t, s.Volumes[1].Target+"/server.pem", env("KAFKA_SSL_KEYSTORE_LOCATION"))
	assert.Contains(t, env("KAFKA_OPTS"), strings.TrimPrefix(env("KAFKA_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL"), "file://"))
	assert.Contains(t, env("KAFKA_LISTENER_NAME_LOGIN_SCRAM___SHA___256_SASL_JAAS_CONFIG"), "ScramLoginModule", "as the image writes a dash")
}
