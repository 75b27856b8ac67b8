package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/idem-go/idem"

type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
	Dir        string
	Name       string
	GoFiles    []string
	Module     *struct {
		Path, GoVersion string
		Main            bool
	}
}

// list returns the packages of the modules in these directories, and all that they import.
func list(t *testing.T, modules ...string) map[string]pkg {
	t.Helper()
	pkgs := map[string]pkg{}
	for _, dir := range modules {
		maps.Copy(pkgs, listModule(t, dir))
	}
	return pkgs
}

// listed has the output of go list for a module, by directory. The tests of this package run one
// after the other.
var listed = map[string]map[string]pkg{}

func listModule(t *testing.T, dir string) map[string]pkg {
	t.Helper()
	if pkgs := listed[dir]; pkgs != nil {
		return pkgs
	}
	cmd := exec.Command("go", "list", "-json", "-deps", "./...")
	cmd.Dir = filepath.Join(root, dir)
	out, err := cmd.Output()
	require.NoError(t, err)
	pkgs := map[string]pkg{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			listed[dir] = pkgs
			return pkgs
		} else if err != nil {
			require.NoError(t, err)
		}
		pkgs[p.ImportPath] = p
	}
}

// own returns the imports of a package that lie in this module.
func own(p pkg) (in []string) {
	for _, i := range p.Imports {
		if i == module || strings.HasPrefix(i, module+"/") {
			in = append(in, i)
		}
	}
	return in
}

// Arrows point one way: dedup (std) <- root <- lane <- runner <- consumer. Stores import dedup and
// their own client. No package imports programs.
func TestImportsPointOneWay(t *testing.T) {
	allowed := map[string]struct {
		own, foreign []string
		reason       string
	}{
		"/dedup":               {nil, nil, "the contract must be implementable without any dependency"},
		"/idemtype":            {[]string{"/dedup"}, nil, "types that the root, the engine and observers share"},
		"/deadletter":          {[]string{"/dedup", "/idemtype", "/internal/safetext"}, nil, "programs that read dead letters need no handlers"},
		"/observe":             {[]string{"/dedup", "/idemtype"}, nil, "an observer needs neither handlers nor a client"},
		"/internal/lazyctx":    {nil, nil, "a context knows no handler"},
		"/internal/sendbudget": {nil, nil, "a budget counts bytes"},
		"/internal/setupwait":  {nil, nil, "pauses know nothing of topics and stores"},
		"/internal/mark":       {nil, nil, "marks are values of their own"},
		"/classify":            {[]string{"/internal/mark"}, nil, "a classifier must not bring a client of the errors that it knows along"},
		"/internal/decoded":    {[]string{"/idemtype", "/internal/mark"}, nil, "decoders of users are called without handlers and stores"},
		"/internal/identity":   {[]string{"/dedup", "/idemtype"}, nil, "identities are found without handlers and stores"},
		"/internal/engine": {
			[]string{"/dedup", "/deadletter", "/idemtype", "/observe", "/internal/decoded", "/internal/identity", "/internal/lazyctx", "/internal/mark", "/internal/observers", "/internal/safetext", "/internal/throttle"},
			nil, "the engine must not know how handlers are registered",
		},
		"": {
			[]string{"/dedup", "/idemtype", "/observe", "/internal/decoded", "/internal/engine", "/internal/identity", "/internal/mark", "/internal/safetext"},
			nil, "handlers must be usable under any Kafka client and any store",
		},
		"/lane":      {[]string{"", "/dedup"}, nil, "adapters to other clients need it without sarama"},
		"/runner":    {[]string{"/deadletter", "/observe", "", "/dedup", "/internal/observers", "/internal/setupwait", "/lane"}, nil, "runners on every client share it"},
		"/kafkaauth": {nil, nil, "every Kafka client needs credentials, whichever it is"},
		"/consumer": {
			[]string{"/runner", "/deadletter", "/observe", "", "/dedup", "/lane", "/kafkaauth", "/internal/bootstrap", "/internal/conns", "/consumer/internal/publish", "/consumer/internal/topicadmin"},
			[]string{"github.com/IBM/sarama", "github.com/xdg-go/scram"}, "the sarama runner",
		},
		"/replay": {
			[]string{"/consumer", "/deadletter", "/observe", "/runner", "", "/dedup", "/lane", "/kafkaauth", "/internal/bootstrap", "/internal/jsontime", "/internal/kafkalog"},
			[]string{"github.com/IBM/sarama"}, "a replay reads the group's topics and is no member of it",
		},
		"/internal/conns":               {nil, []string{"github.com/IBM/sarama"}, "it knows connections, not what goes over them"},
		"/internal/bootstrap":           {[]string{"/internal/conns"}, []string{"github.com/IBM/sarama"}, "it knows who answers, not what is asked later"},
		"/consumer/internal/publish":    {[]string{"", "/internal/bootstrap", "/internal/conns", "/internal/sendbudget"}, []string{"github.com/IBM/sarama"}, "it publishes for programs that consume nothing"},
		"/consumer/internal/topicadmin": {[]string{"/runner"}, []string{"github.com/IBM/sarama"}, "it knows topics and rights, not who consumes them"},
		"/dedup/memstore":               {[]string{"/dedup", "/internal/decision"}, nil, "a store needs the contract and its own client only"},
		"/dedup/pgstore":                {[]string{"/dedup", "/internal/decision", "/internal/pgschema", "/internal/reaping"}, []string{"github.com/jackc/pgx/v5"}, "a store needs the contract and its own client only"},
		"/dedup/redisstore":             {[]string{"/dedup"}, []string{"github.com/redis/go-redis/v9"}, "a store needs the contract and its own client only"},
		"/httpidem":                     {[]string{"/dedup", "/internal/safetext"}, []string{"github.com/dunglas/httpsfv", "github.com/hashicorp/go-retryablehttp"}, "the middleware must not bring a store or a broker along"},
		"/httpidem/httpidemtest":        {[]string{"/dedup", "/httpidem"}, []string{"github.com/stretchr/testify"}, "it must serve stores outside this module"},
		"/outbox":                       {[]string{"/deadletter", "", "/dedup", "/internal/safetext", "/internal/setupwait"}, nil, "entries and relay must be usable with any database and any Kafka client"},
		"/outbox/pgoutbox":              {[]string{"", "/dedup", "/outbox", "/internal/outboxrow", "/internal/pgschema"}, []string{"github.com/jackc/pgx/v5", "go.opentelemetry.io/otel/propagation"}, "it must serve services that have no store in Postgres"},
		"/outbox/outboxtest":            {[]string{"", "/dedup", "/outbox"}, []string{"github.com/stretchr/testify"}, "it must serve outboxes outside this module"},
		"/internal/outboxrow":           {[]string{"", "/dedup", "/outbox"}, []string{"go.opentelemetry.io/otel/propagation"}, "outboxes on every database share it, so it must bring no client along"},
		"/internal/safetext":            {nil, nil, "every package that writes texts of errors somewhere needs it, so it must bring nothing along"},
		"/internal/observers":           {[]string{"/observe"}, nil, "the engine and runners share it, and neither imports the other"},
		"/internal/throttle":            {nil, nil, "bounds are values of their own, which know nothing of events"},
		"/otelidem":                     {[]string{"/observe", "", "/dedup", "/outbox", "/httpidem"}, []string{"go.opentelemetry.io/otel"}, "it must serve every client and every store"},
		"/internal/pgschema":            {nil, []string{"github.com/jackc/pgx/v5"}, "helpers of the packages for Postgres, which must not need each other"},
		"/internal/kafkalog":            {[]string{"", "/consumer"}, []string{"github.com/IBM/sarama"}, "it knows topics, not what is in them"},
		"/internal/deadletters":         {[]string{"/deadletter", "", "/dedup", "/internal/jsontime", "/internal/kafkalog"}, []string{"github.com/IBM/sarama"}, "the command and the ops page share it: no flags, no store's own client"},
		"/internal/events":              {[]string{"/deadletter", "", "/dedup", "/internal/deadletters", "/internal/jsontime"}, []string{"github.com/IBM/sarama"}, "the command and the ops page share it: no flags, no store's own client"},
		"/internal/decision":            {[]string{"/dedup"}, nil, "a store's decisions are pure: they know no database"},
		"/internal/reaping":             {[]string{"/dedup", "/internal/decision", "/internal/safetext"}, nil, "the reapers of all SQL stores share it, so it knows no database"},
		"/idemtest":                     {[]string{"", "/deadletter", "/dedup", "/dedup/memstore", "/observe"}, nil, "tests of handlers need no Kafka client and no server"},
		"/internal/faketime":            {nil, nil, "it serves tests of every package"},
		"/internal/opsstyle":            {nil, nil, "a style sheet needs nothing"},
		"/internal/redact":              {nil, nil, "whoever prints needs it"},
		"/internal/jsontime":            {nil, nil, "times know nothing of the views that show them"},
		"/internal/words":               {nil, nil, "numbers know nothing of the page and the command that show them"},
		"/internal/groups":              {[]string{"/deadletter", ""}, []string{"github.com/IBM/sarama"}, "a page and a command ask how far a group is: neither flags nor a terminal, no store"},
		"/internal/outboxview":          {[]string{"/dedup", "/internal/pgschema", "/outbox/pgoutbox"}, []string{"github.com/jackc/pgx/v5"}, "a page and a command ask what waits: neither flags nor a terminal, no broker"},
		"/ops": {
			[]string{"/observe", "/deadletter", "", "/consumer", "/dedup", "/internal/events", "/internal/groups", "/internal/kafkalog", "/internal/deadletters", "/internal/bootstrap", "/internal/opsstyle", "/internal/words", "/outbox", "/outbox/pgoutbox"},
			[]string{"github.com/IBM/sarama"}, "the page must not bring the clients of all stores along",
		},
		"/ops/doctor": {
			[]string{"/consumer", "/internal/doctor", "/ops", "/internal/bootstrap"}, []string{"github.com/IBM/sarama", "github.com/jackc/pgx/v5", "github.com/redis/go-redis/v9"},
			"what it looks at is internal/doctor's business",
		},
		"/internal/doctor": {
			[]string{"/deadletter", "", "/consumer", "/dedup/pgstore", "/dedup/redisstore", "/internal/groups", "/internal/outboxview", "/internal/pgschema", "/internal/redact", "/internal/words", "/outbox/pgoutbox"},
			[]string{"github.com/IBM/sarama", "github.com/jackc/pgx/v5", "github.com/redis/go-redis/v9"}, "it finds, a page and a command tell: neither flags nor a terminal",
		},
		"/dedup/storetest": {[]string{"/dedup"}, []string{"github.com/stretchr/testify"}, "it must serve stores outside this module"},
	}
	pkgs := list(t, ".", "cmd/idem", "examples")
	for path, rule := range allowed {
		p, ok := pkgs[module+path]
		require.True(t, ok, "%s%s is gone: mend this test", module, path)
		for _, i := range own(p) {
			require.Contains(t, prefixed(rule.own), i, "%s imports %s: %s", p.ImportPath, i, rule.reason)
		}
		for _, i := range p.Imports {
			if pkgs[i].Standard || strings.HasPrefix(i, module) {
				continue
			}
			require.True(t, hasPrefixOf(i, rule.foreign), "%s imports %s: %s", p.ImportPath, i, rule.reason)
		}
	}
	for _, p := range pkgs {
		for _, i := range own(p) {
			for _, programs := range []string{"/examples", "/cmd", "/test"} {
				if strings.HasPrefix(i, module+programs+"/") {
					require.True(t, strings.HasPrefix(p.ImportPath, module+programs+"/"), "%s imports the program %s", p.ImportPath, i)
				}
			}
		}
	}
}

// Test helpers must not reach the binaries of users: package testing alone adds flags to them.
func TestLibrariesDoNotLinkTestHelpers(t *testing.T) {
	pkgs := list(t, ".")
	for _, path := range []string{"", "/classify", "/dedup", "/kafkaauth", "/lane", "/runner", "/consumer", "/dedup/memstore", "/dedup/pgstore", "/dedup/redisstore", "/httpidem", "/outbox", "/outbox/pgoutbox", "/otelidem", "/replay", "/internal/kafkalog", "/internal/deadletters", "/internal/events", "/internal/doctor", "/internal/groups", "/internal/outboxview", "/ops", "/ops/doctor"} {
		for _, d := range pkgs[module+path].Deps {
			for _, bad := range []string{"testing", "github.com/stretchr/testify", module + "/internal/testenv", module + "/dedup/storetest", module + "/outbox/outboxtest", module + "/httpidem/httpidemtest", "go.opentelemetry.io/otel/sdk"} {
				require.False(t, d == bad || strings.HasPrefix(d, bad+"/"), "%s links %s", module+path, d)
			}
		}
	}
}

// The examples export telemetry. Users of a library do not link their exporters.
func TestOnlyExamplesLinkExporters(t *testing.T) {
	const otel = "go.opentelemetry.io/"
	exporters := []string{otel + "otel/sdk", otel + "otel/exporters", otel + "contrib", "github.com/prometheus", "google.golang.org/grpc", "google.golang.org/protobuf"}
	pkgs := list(t, ".", "examples")
	require.True(t, links(pkgs[module+"/examples/internal/telemetry"], exporters), "nothing would be found")
	for path, p := range pkgs {
		rel, ok := strings.CutPrefix(path, module)
		if !ok || strings.HasPrefix(rel, "/examples/") || strings.HasPrefix(rel, "/test/") ||
			rel == "/codec/schemaregistry" { // a module of its own, which decodes Protobuf
			continue
		}
		require.False(t, links(p, exporters), "%s links exporters of telemetry", path)
	}
}

// The command and the examples export telemetry by the same code. Neither module may require the
// other, and a library would bring the exporters to all users.
func TestTelemetryIsTheSame(t *testing.T) {
	for _, file := range []string{"state.go", "telemetry.go", "telemetry_test.go"} {
		require.Equal(t, string(read(t, "examples/internal/telemetry/"+file)), string(read(t, "cmd/idem/internal/telemetry/"+file)), file)
	}
}

// links reports whether p links one of packages, or a package below one.
func links(p pkg, packages []string) bool {
	return slices.ContainsFunc(p.Deps, func(d string) bool { return hasPrefixOf(d, packages) })
}

func prefixed(paths []string) (out []string) {
	for _, p := range paths {
		out = append(out, module+p)
	}
	return out
}

func hasPrefixOf(s string, list []string) bool {
	for _, l := range list {
		if s == l || strings.HasPrefix(s, l+"/") {
			return true
		}
	}
	return false
}
