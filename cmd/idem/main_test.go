package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// Every mistake in flags and arguments has exit code 2 and a text that names the mistake, whichever
// part of the program finds it.
func TestUsage(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"", ""},
		{"evnet get x", `no command "evnet"`},
		{"event", ""},
		{"event gte x", `no command "gte"`},
		{"completion fsh", `no command "fsh"`},
		{"event get", "the event's ID"},
		{"event get a b", "one argument"},
		{"event get a", "--group"},
		{"event get a -G g", "--store"},
		{"event get a -G g --store mongodb://u:canary@h/db", "mongodb"},
		{"event get a -G g --store redis+ring://u:canary@h/0", "redis+cluster"},
		{"event get a -G g --legder x", "unknown flag"},
		{"event get a -o yaml", "table or json"},
		{"event list now", "no arguments"},
		{"event list --status lost -G g", "pending, failed"},
		{"event list --status stuck,done -G g", "goes with no other"},
		{"event list --limit 0 -G g", "--limit"},
		{"event skip a --retention 0s -G g", "--retention"},
		{"event skip -G g", "the event's ID, or --topic"},
		{"event skip a b -G g", "one argument"},
		{"event skip a --id-header x -G g", "--offset too"},
		{"event skip --topic t --offset 1 -G g", "partition"},
		{"event skip --partition 1 --offset 1 -G g", "give --topic"},
		{"event skip --topic t --partition 1 --offset -1 -G g", "not be negative"},
		{"event skip a --topic t --partition 1 --offset 1 -G g", "neither an ID"},
		{"event skip --topic t --partition 1 --offset 1 --type a --type-json b -G g", "no other flag for the type"},
		{"event skip --topic t --partition 1 --offset 1 --tenant a --tenant-json b -G g", "tenant"},
		{"event skip --topic t --partition 1 --offset 1", "--group"},
		{"event skip --topic t --partition 1 --offset 1 -G g", "--brokers"},
		{"migrate print --layout wide", "readable or compact"},
		{"migrate up", "--store"},
		{"reap --batch 0", "--batch"},
		{"reap --health :8080", "--health needs --watch"},
		{"init", "module"},
		{"init --module Shop!", "no module path"},
		{"init --module shop --topic a/b", "no name of a topic"},
		{"init --module shop --store-type mysql", "sqlite or postgres"},
		{"init --module shop", "--replace"},
		{"init a b --module shop", "at most 1 arg"},
		{"ops", "the page would be empty"},
		{"ops --store sqlite:x.db", "--group"},
		{"ops --brokers h:9092", "--group"},
		{"ops --listen :8080 --brokers h:9092 -G g", "set --oidc-issuer, --basic-auth-file, or --auth-header with --trusted-proxies"},
		{"ops --listen 10.0.0.1:8080 --brokers h:9092 -G g", "not a loopback address"},
		{"ops --listen ops.example:8080 --brokers h:9092 -G g", "not a loopback address"},
		{"ops --listen [::]:8080 --brokers h:9092 -G g", "not a loopback address"},
		{"ops --listen 8080 --brokers h:9092 -G g", `--listen "8080" is no host:port`},
		{"ops --listen foo --brokers h:9092 -G g", `--listen "foo" is no host:port, such as 127.0.0.1:8080 or :8080`},
		{"ops --listen 127.0.0.1: --brokers h:9092 -G g", "is no host:port"},
		{"ops --listen 127.0.0.1:99999 --brokers h:9092 -G g", `"99999" is no port, as in 127.0.0.1:8080`},
		{"ops --health garbage --brokers h:9092 -G g", `--health "garbage" is no host:port`},
		{"reap --watch --health garbage --store sqlite:x.db", `--health "garbage" is no host:port`},
		{"relay --brokers h:1 --outbox postgres://h/db --health nonsense", `--health "nonsense" is no host:port`},
		{"relay --brokers h:1 --outbox postgres://h/db --health :-1", `"-1" is no port`},
		{"help nosuch", `idem has no command "nosuch"`},
		{"help dlq nosuch", `idem dlq has no command "nosuch"`},
		{"help dlq ls nosuch", `idem dlq ls has no command "nosuch"`},
		{"ops --listen :8080 --auth-header X-User --brokers h:9092 -G g", "trusted proxy"},
		{"ops --listen :8080 --auth-header X-User --trusted-proxies 0.0.0.0/0 -G g", "all addresses"},
		{"ops --auth-header X-User --basic-auth-file x -G g", "not several"},
		{"ops --auth-groups-header X-Groups -G g", "needs --auth-header"},
		{"ops --trusted-proxies 10.0.0.1 -G g", "needs --auth-header"},
		{"ops --basic-auth-file x --operator-groups sre -G g", "need --auth-groups-header"},
		{"ops --basic-auth-file no-such-file -G g", "--basic-auth-file"},
		{"ops --oidc-issuer https://id.example --basic-auth-file x -G g", "not several"},
		{"ops --oidc-issuer https://id.example -G g", "--public-url"},
		{"ops --oidc-client-id x -G g", "need --oidc-issuer"},
		{"ops --oidc-issuer https://id.example --oidc-client-id x --public-url https://p/ -G g", "--viewers '*'"},
		{"ops --oidc-issuer http://id.example --oidc-client-id x --public-url https://p/ --viewers * -G g", "use https"},
		{"ops --oidc-issuer https://id.example --oidc-client-id x --public-url https://p --viewers * -G g", "slash"},
		{"ops --oidc-issuer https://id.example --oidc-client-id x --public-url https://p/ --viewers * --session-life 25h -G g", "24 hours"},
		{"ops --oidc-issuer https://id.example --oidc-client-id x --public-url https://p/ --viewers * --session-key-file none -G g", "--session-key-file"},
		{"ops --oidc-issuer https://id.example --oidc-client-id x --public-url https://p/ --viewers * --oidc-client-secret-file none -G g", "--oidc-client-secret-file"},
		{"ops --viewers ada -G g", "way to sign in"},
		{"ops --payloads some -G g", "all, operators or none"},
		{"ops --lanes 0 -G g", "--lanes"},
		{"ops --prefix ops --brokers h:9092 -G g", "slash"},
		{"ops --trusted-origins nowhere --brokers h:9092 -G g", "TrustedOrigins"},
		{"ops --listen-tls-cert x --brokers h:9092 -G g", "belong together"},
		{"ops --listen-tls-key x --brokers h:9092 -G g", "belong together"},
		{"ops --listen-tls-cert no-such-file --listen-tls-key x --brokers h:9092 -G g", "--listen-tls-cert, --listen-tls-key: no-such-file"},
		{"ops --health :8081 --listen :8081 -G g", "same address"},
		{"import -G g", "from-table"},
		{"import -G g --from-table x --from-topic y", "from-table"},
		{"import -G g --from-topic y --id-header a --id-json b", "id-header"},
		{"import --from-topic y", "--group"},
	} {
		r := command(t, strings.Fields(c.args)...)
		require.Equal(t, exitUsage, r.code, "%q: %s", c.args, r.stderr)
		require.Contains(t, r.stderr, c.says, c.args)
		require.NotContains(t, r.stderr, "canary")
		require.Empty(t, r.audits(t), "nothing was asked for yet: %s", c.args)
	}
}

// The shell is offered the values of flags that have a few only.
func TestCompletion(t *testing.T) {
	for args, want := range map[string][]string{
		"event list --status ":     statusNames(),
		"event list --output ":     {"table", "json"},
		"lag --sasl-mechanism ":    {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"},
		"migrate up --layout ":     {"readable", "compact"},
		"migrate status --layout ": {"readable", "compact"},
	} {
		out := command(t, append([]string{cobra.ShellCompRequestCmd}, strings.Split(args, " ")...)...).ok(t)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		require.Equal(t, append(want, ":4"), lines, args)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		require.Contains(t, command(t, "completion", shell).ok(t), "idem")
	}
}

// Every visible command has a description, and so has each of its flags.
func TestFlagsHaveWords(t *testing.T) {
	root := newRoot(&app{stdout: io.Discard, stderr: io.Discard})
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		require.NotEmpty(t, cmd.Short, cmd.CommandPath())
		cmd.Flags().VisitAll(func(f *pflag.Flag) { require.NotEmpty(t, f.Usage, "%s --%s", cmd.CommandPath(), f.Name) })
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

// G-04: no text of this command shows a password, wherever it was given and in any error.
func TestSecretsAreNotShown_G04(t *testing.T) {
	const canary = "canary-4711"
	t.Setenv("IDEM_STORE", "postgres://idem:"+canary+"@127.0.0.1:1/db")
	t.Setenv("IDEM_SASL_PASSWORD", canary)
	t.Setenv("PGPASSWORD", canary)
	all := [][]string{{"--help"}, {"event", "get", "--help"}, {"event", "get", "x", "-G", "g"}, {"migrate", "status"}, {"migrate", "up"}}
	for _, url := range []string{
		"postgres://idem:" + canary + "@127.0.0.1:1/db", // no server there
		"postgres://idem:" + canary + "#@127.0.0.1:1/db",
		"postgres://idem:" + canary + "@127.0.0.1:port/db",
		"postgres://127.0.0.1:1/db?password=" + canary,
		"host=127.0.0.1 port=1 password=" + canary,
		"redis://:" + canary + "@127.0.0.1:1/0",
		"redis://u:" + canary + "@127.0.0.1:1/zero",
		"redis://u:" + canary + "#@127.0.0.1:1/0",
		"redis://u:" + canary + "%zz@127.0.0.1:1/0",
		"rediss://u:" + canary + "@127.0.0.1:1/0?nothing=1",
		"redis+cluster://u:" + canary + "@127.0.0.1:1,127.0.0.1:2",
		"redis+sentinel://u:" + canary + "@127.0.0.1:1/0",
		"mysql://u:" + canary + "@127.0.0.1:1/0",
		canary,
	} {
		all = append(all, []string{"event", "get", "x", "--type", "t", "-G", "g", "--store", url},
			[]string{"import", "-G", "g", "--type", "t", "--from-table", "SELECT 1 AS event_id", "--from-url", url, "--store", inMemory})
	}
	for _, verb := range []string{"release", "skip"} { // these have an audit line too
		all = append(all, []string{"event", verb, "x", "--type", "t", "-G", "g", "-y"})
	}
	for _, more := range [][]string{
		{"--sasl-mechanism", "PLAIN", "--sasl-user", "u"},         // refused: no TLS
		{"--sasl-mechanism", "SCRAM-SHA-256", "--sasl-user", "u"}, // refused as well
		{"--sasl-mechanism", "PLAIN", "--sasl-user", "u", "--tls"},
		{"--sasl-mechanism", "GSSAPI", "--sasl-user", "u"},
	} {
		all = append(all, append([]string{"event", "get", "x", "-G", "g", "--store", inMemory, "--type", "t", "--dead-letters", "--brokers", "127.0.0.1:1"}, more...))
	}
	for _, args := range all {
		_, known := memory()
		r := commandWith(t, known, "", args...)
		require.NotContains(t, r.stdout+r.stderr, canary, args)
		if !strings.Contains(strings.Join(args, " "), "--help") {
			require.NotEqual(t, exitOK, r.code, "%v: %s", args, r.stdout)
			require.NotEmpty(t, r.stderr, args)
		}
	}
}

// G-04: the errors of third parties are redacted too.
func TestRedact_G04(t *testing.T) {
	a := &app{}
	a.secrets.AddURL("postgres://idem:p%40ss%2Fword@host/db?sslpassword=another-one")
	for text, want := range map[string]string{
		"login with p@ss/word failed":             "login with xxxxx failed",
		"as written: p%40ss%2Fword":               "as written: xxxxx",
		"key another-one":                         "key xxxxx",
		"dial redis://u:whatever@host:6379/0 now": "dial redis://u:xxxxx@host:6379/0 now",
		"host=h password=geheim dbname=d":         "host=h password=xxxxx dbname=d",
		"host=h password='ge heim' dbname=d":      "host=h password=xxxxx dbname=d",
		"postgres 127.0.0.1:5432/db":              "postgres 127.0.0.1:5432/db",
		"see https://example.com/a:b":             "see https://example.com/a:b",
	} {
		require.Equal(t, want, a.redact(text))
	}
}

// G-04: a password that ends too early lies where a host or a path is shown: the URL is refused
// before anybody is asked.
func TestURLsThatSplitAPassword_G04(t *testing.T) {
	for _, url := range []string{
		"postgres://u:4711/canary@127.0.0.1:1/db", "postgres://u:a@canary@127.0.0.1:1/db", "redis://u:4711#canary@127.0.0.1:1/0",
		"redis+cluster://u:canary/x@127.0.0.1:1", "u:canary://x@127.0.0.1:1",
	} {
		r := command(t, "event", "get", "x", "-G", "g", "--type", "t", "--store", url)
		require.Equal(t, exitUsage, r.code, url)
		require.NotContains(t, r.stdout+r.stderr, "canary", url)
	}
	r := command(t, "outbox", "status", "--outbox", "postgres://u:4711/canary@127.0.0.1:1/db")
	r.failed(t, exitUsage, "cannot be parsed")
	require.NotContains(t, r.stdout+r.stderr, "canary")
}

// G-07: the rules of consumers about secrets count for the command as well.
func TestKafkaSecurity_G07(t *testing.T) {
	base := []string{"event", "get", "x", "-G", "g", "--store", inMemory, "--type", "t", "--dead-letters", "--brokers", "127.0.0.1:1"}
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, []byte("no certificate"), 0o600))
	t.Setenv("IDEM_SASL_PASSWORD", "geheim")
	for _, c := range []struct {
		more []string
		code int
		says string
	}{
		{[]string{"--sasl-mechanism", "PLAIN", "--sasl-user", "u"}, exitUsage, "without TLS"},
		{[]string{"--sasl-mechanism", "PLAIN", "--sasl-user", "u", "--allow-insecure"}, exitFailure, "kafka 127.0.0.1:1"},
		{[]string{"--sasl-mechanism", "PLAIN"}, exitUsage, "--sasl-user"},
		{[]string{"--sasl-mechanism", "ROT13", "--sasl-user", "u"}, exitUsage, "SASL"},
		{[]string{"--tls-ca", file}, exitUsage, "no certificate"},
		{[]string{"--tls-ca", file + ".not"}, exitUsage, "--tls-ca"},
		{[]string{"--tls-cert", file}, exitUsage, "belong together"},
		{[]string{"--tls"}, exitFailure, "kafka 127.0.0.1:1"},
	} {
		_, known := memory()
		r := commandWith(t, known, "", append(base, c.more...)...)
		r.failed(t, c.code, c.says)
	}
	t.Setenv("IDEM_SASL_PASSWORD", "")
	_, known := memory()
	commandWith(t, known, "", append(base, "--sasl-mechanism", "PLAIN", "--sasl-user", "u", "--tls")...).failed(t, exitUsage, "IDEM_SASL_PASSWORD")
}

func TestSplitStores(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                      nil,
		"postgres://a/b":                        {"postgres://a/b"},
		"postgres://a/b,redis://c":              {"postgres://a/b", "redis://c"},
		"redis+cluster://a:1,b:2, postgres://c": {"redis+cluster://a:1,b:2", "postgres://c"},
		"host=x,redis://c":                      {"host=x", "redis://c"},
	} {
		require.Equal(t, want, splitStores(text), text)
	}
}

// A flag takes the place of its variable in the environment.
func TestStoreFlagReplacesTheEnvironment(t *testing.T) {
	t.Setenv("IDEM_STORE", "redis://elsewhere:1")
	t.Setenv("IDEM_BROKERS", "elsewhere:1")
	a := &app{}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, s := range a.sharedFlags() {
		flags.AddFlagSet(s.set)
	}
	require.Equal(t, []string{"redis://elsewhere:1"}, a.stores)
	require.NoError(t, flags.Parse([]string{"--store", "redis://a:1", "--store", "redis://b:1", "--brokers", "c:1"}))
	a.output = "table"
	require.NoError(t, a.begin(t.Context(), true))
	require.Equal(t, []string{"redis://a:1", "redis://b:1"}, a.stores)
	require.Equal(t, []string{"c:1"}, a.brokers)
}

func TestRedisURLs(t *testing.T) {
	for rest, want := range map[string]string{
		"|h:1/2":                     "redis h:1/2",
		"|u:p@h:1/2?read_timeout=3s": "redis h:1/2",
		"|u:p@h:1,i:2":               "redis cluster h:1,i:2",
		"+cluster|h:1":               "redis cluster h:1",
		"+cluster|h:1?addr=i:2":      "redis cluster h:1,i:2",
		"+cluster|u:p@h:1,i:2,j:3/?read_timeout=3s": "redis cluster h:1,i:2,j:3",
		"+sentinel|h:1,i:2/3?master_name=main":      "redis main/3",
	} {
		kind, rest, _ := strings.Cut(rest, "|")
		client, name, err := redisClient(kind, true, rest)
		require.NoError(t, err, rest)
		require.Equal(t, want, name)
		require.NoError(t, client.Close())
	}
}

// The text of a producer does not reach the terminal as a command.
func TestTableEscapesControlCharacters_G04(t *testing.T) {
	var out strings.Builder
	a := &app{stdout: &out, output: "table"}
	require.NoError(t, a.show(nil, []string{"ID"}, [][]string{{"a\x1b[2Jb\nc\u202ed\u009b"}}))
	require.Equal(t, "ID\na\\u001b[2Jb\\u000ac\\u202ed\\u009b\n", out.String())
}

// The audit line is also in the file. If the file cannot be written, no change is made.
func TestAuditFile(t *testing.T) {
	s, known := memory()
	finish(t, s, claim(t, s, inScope("order", "1"), dedupOrigin(1)), "")
	file := filepath.Join(t.TempDir(), "audit")
	args := []string{"event", "release", "1", "--type", "order", "-G", "billing", "--store", inMemory, "--audit-file"}
	r := commandWith(t, known, "", append(args, filepath.Join(file, "no"), "-y")...)
	r.failed(t, exitFailure, "--audit-file")
	require.Equal(t, 1, s.Len(), "it happened without being on record")

	commandWith(t, known, "n\n", append(args, file)...).failed(t, exitFound, "not confirmed")
	commandWith(t, known, "", append(args, file, "-y")...).ok(t)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := auditLines(t, string(text))
	require.Len(t, lines, 2)
	require.Equal(t, "refused", lines[0]["outcome"])
	require.Equal(t, "done", lines[1]["outcome"])
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// The variable of the audit file is set for all verbs. A verb without audit lines does not need the
// file.
func TestAuditFileOfVerbsWithoutAuditLines(t *testing.T) {
	s, known := memory()
	finish(t, s, claim(t, s, inScope("order", "1"), dedupOrigin(1)), "")
	t.Setenv("IDEM_AUDIT_FILE", filepath.Join(t.TempDir(), "none", "audit"))
	commandWith(t, known, "", "version").ok(t)
	commandWith(t, known, "", onMemory("get", "1", "--type", "order")...).ok(t)
	commandWith(t, known, "", onMemory("release", "1", "--type", "order", "-y")...).failed(t, exitFailure, "--audit-file")
	require.Equal(t, 1, s.Len())
}

// A verb that asks has one audit line for each exit code but 2, also if its servers are away before
// its question, or if there is nothing to change.
func TestAuditLineOfEachEnd(t *testing.T) {
	w := newDeadLetterWorld(t)
	away, store := testenv.FreeAddr(t), "sqlite:"+filepath.Join(t.TempDir(), "shop.db")
	command(t, "migrate", "up", "--store", store).ok(t)
	awayStore := "postgres://idem@" + away + "/shop"
	for args, want := range map[string]string{
		"rewind -G g --to 1h --brokers " + away:                                                           "failed",
		"rewind -G g --to 1h --brokers " + w.brokers[0]:                                                   "refused",
		"import -G g --from-topic orders --to-committed --brokers " + away + " --store " + store:          "failed",
		"import -G g --from-topic orders --to-committed --brokers " + away + " --store " + awayStore:      "failed",
		"dlq discard -G g -t orders --id x --reason no --brokers " + away + " --store " + store:           "failed",
		"dlq replay -G g -t orders --brokers " + away + " --store " + store:                               "failed",
		"dlq replay -G g -t orders --brokers " + away + " --store " + awayStore:                           "failed",
		"dlq replay -G g -t nowhere --brokers " + w.brokers[0] + " --store " + store:                      "refused",
		"dlq replay -G g -t orders --brokers " + w.brokers[0] + " --store " + store:                       "done",
		"dlq edit -G g -t orders 0/0 --brokers " + away + " --store " + store:                             "failed",
		"dlq purge -G g -t orders --brokers " + away + " --store " + store:                                "failed",
		"dlq purge -G g -t orders --brokers " + w.brokers[0] + " --store " + store:                        "done",
		"event skip -G g --topic orders --partition 0 --offset 0 --brokers " + away + " --store " + store: "failed",
		"outbox retry 1 --outbox " + awayStore:                                                            "failed",
		"scope create -G g --scope s -t orders --store " + awayStore:                                      "failed",
		"reap --store " + awayStore:                                                                       "failed",
	} {
		r := command(t, append(strings.Fields(args), "--yes")...)
		verb, _, _ := strings.Cut(args, " -")
		verb = strings.TrimSuffix(verb, " 1")
		require.Equal(t, map[string]int{"done": exitOK, "refused": exitFound, "failed": exitFailure}[want], r.code, "%s: %s", args, r.stderr)
		require.Len(t, r.audits(t), 1, "%s: %s", args, r.stderr)
		require.Equal(t, verb, r.audits(t)[0]["audit"])
		require.Equal(t, want, r.audits(t)[0]["outcome"])
		if strings.HasPrefix(verb, "dlq") {
			require.Contains(t, r.audits(t)[0]["topic"], ".g.dlq")
			require.Equal(t, "g", r.audits(t)[0]["group"])
		}
	}
	for _, args := range []string{"dlq purge -G g -t orders --brokers " + away + " --store " + store + " --dry-run", "lag --brokers " + away} {
		require.Empty(t, command(t, strings.Fields(args)...).audits(t))
	}
}

// A question ends with the command: after ^C, the person need not press return as well.
func TestInterruptedQuestion(t *testing.T) {
	s, known := memory()
	finish(t, s, claim(t, s, inScope("order", "1"), dedupOrigin(1)), "")
	ctx, cancel := context.WithCancel(t.Context())
	stdin, typing := io.Pipe() // without input
	defer typing.Close()
	seen := &onWrite{substring: "Go on?", then: cancel}
	a := &app{stdin: stdin, stdout: io.Discard, stderr: seen, known: known}
	code := a.run(ctx, []string{"event", "release", "1", "--type", "order", "-G", "billing", "--store", inMemory})
	require.Equal(t, exitFound, code)
	require.Equal(t, 1, s.Len())
}

// onWrite calls then when substring is written.
type onWrite struct {
	substring string
	then      func()
}

func (w *onWrite) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.substring) {
		w.then()
	}
	return len(p), nil
}

func TestExitCodes(t *testing.T) {
	a := &app{}
	require.Nil(t, a.exitOf(nil))
	require.Equal(t, exitUsage, a.exitOf(io.EOF).code, "before the command began it was about flags")
	a.begun = true
	require.Equal(t, exitFailure, a.exitOf(io.EOF).code)
	require.Equal(t, exitFound, a.exitOf(fmt.Errorf("wrapped: %w", found("bad"))).code)
}

// Of several errors the worst decides, and the text has all of them.
func TestExitCodeOfJoinedErrors(t *testing.T) {
	bad, wrong, away := found("bad"), usage("wrong"), errors.New("away")
	for name, c := range map[string]struct {
		err    error
		code   int
		text   string
		audits string // the outcome of the audit line; empty: no line
	}{
		"one":                       {errors.Join(bad, nil), exitFound, "bad", "refused"},
		"a bad result first":        {errors.Join(bad, away), exitFailure, "bad\naway", "failed"},
		"a failure first":           {errors.Join(away, bad), exitFailure, "away\nbad", "failed"},
		"usage and a failure":       {errors.Join(wrong, away), exitFailure, "wrong\naway", "failed"},
		"usage and a bad result":    {errors.Join(bad, wrong), exitFound, "bad\nwrong", "refused"},
		"two of usage":              {errors.Join(wrong, wrong), exitUsage, "wrong\nwrong", ""},
		"two bad results":           {errors.Join(bad, bad), exitFound, "bad\nbad", "refused"},
		"wrapped":                   {fmt.Errorf("x: %w", errors.Join(bad, away)), exitFailure, "x: bad\naway", "failed"},
		"joined in another":         {errors.Join(bad, errors.Join(away, bad)), exitFailure, "bad\naway\nbad", "failed"},
		"a bad result of a failure": {&exitError{exitFound, errors.Join(bad, away)}, exitFound, "bad\naway", "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			var errs strings.Builder
			a := &app{begun: true, stderr: &errs}
			got := a.exitOf(c.err)
			require.Equal(t, c.code, got.code)
			require.EqualError(t, got.err, c.text)
			a.auditOutcome("test", map[string]any{}, c.err)
			if c.audits == "" {
				require.Empty(t, errs.String())
				return
			}
			require.Contains(t, errs.String(), `"outcome":"`+c.audits+`"`)
		})
	}
}
