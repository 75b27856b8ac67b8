package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/redisstore"
)

// app is what the commands share: flags, connections, and how they speak.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	brokers []string
	group   string
	scope   string
	ledgers []string // URLs
	output  string
	yes     bool

	closers []func()
}

func (a *app) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&a.brokers, "brokers", envList("IDEM_BROKERS"), "Kafka brokers, host:port (env IDEM_BROKERS)")
	f.StringVarP(&a.group, "group", "G", os.Getenv("IDEM_GROUP"), "consumer group (env IDEM_GROUP)")
	f.StringVar(&a.scope, "scope", os.Getenv("IDEM_SCOPE"), "scope of the ledger, the group by default (env IDEM_SCOPE)")
	f.StringSliceVar(&a.ledgers, "ledger", envList("IDEM_LEDGER"), "postgres://... or redis://... of a ledger; several if events are in either (env IDEM_LEDGER)")
	f.StringVarP(&a.output, "output", "o", "table", "table or json")
	f.BoolVarP(&a.yes, "yes", "y", false, "do not ask")
}

func envList(name string) []string {
	return strings.FieldsFunc(os.Getenv(name), func(r rune) bool { return r == ',' })
}

// close closes what was opened, the last first.
func (a *app) close() {
	for i := len(a.closers) - 1; i >= 0; i-- {
		a.closers[i]()
	}
	a.closers = nil
}

// theScope is whose events are meant.
func (a *app) theScope() (string, error) {
	if s := cmp.Or(a.scope, a.group); s != "" {
		return s, nil
	}
	return "", usage("whose events? give --group, or --scope")
}

func (a *app) theGroup() (string, error) {
	if a.group == "" {
		return "", usage("which consumer group? give --group")
	}
	return a.group, nil
}

// ledger is an open ledger.
type ledger struct {
	name  string // without credentials
	store dedup.Store
	pool  *pgxpool.Pool         // or nil
	redis redis.UniversalClient // or nil
}

// operator is what every ledger of this command can do.
func (l *ledger) operator() dedup.Operator { return l.store.(dedup.Operator) }

// openLedgers connects to all ledgers that were named.
func (a *app) openLedgers(ctx context.Context) ([]*ledger, error) {
	if len(a.ledgers) == 0 {
		return nil, usage("which ledger? give --ledger, a postgres:// or redis:// URL")
	}
	var all []*ledger
	for _, url := range a.ledgers {
		l, err := a.openLedger(ctx, url)
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

func (a *app) openLedger(ctx context.Context, url string) (*ledger, error) {
	switch scheme, _, _ := strings.Cut(url, "://"); scheme {
	case "postgres", "postgresql":
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return nil, usage("--ledger: %v", err)
		}
		a.closers = append(a.closers, pool.Close)
		c := pool.Config().ConnConfig
		return &ledger{name: fmt.Sprintf("postgres %s:%d/%s", c.Host, c.Port, c.Database), store: pgstore.New(pool), pool: pool}, nil
	case "redis", "rediss":
		opts, err := redis.ParseURL(url)
		if err != nil {
			return nil, usage("--ledger: %v", err)
		}
		client := redis.NewClient(opts)
		a.closers = append(a.closers, func() { _ = client.Close() })
		return &ledger{name: fmt.Sprintf("redis %s/%d", opts.Addr, opts.DB), store: redisstore.New(client), redis: client}, nil
	default:
		return nil, usage("--ledger: a URL that begins with postgres:// or redis://, not %q", scheme)
	}
}

// kafka connects to the brokers.
func (a *app) kafka() (sarama.Client, error) {
	if len(a.brokers) == 0 {
		return nil, usage("which Kafka? give --brokers")
	}
	cfg, err := consumer.DefaultSaramaConfig(consumer.Config{Brokers: a.brokers, Group: cmp.Or(a.group, "idem"), Topics: []string{"unused"}})
	if err != nil {
		return nil, usage("%v", err)
	}
	client, err := sarama.NewClient(a.brokers, cfg)
	if err != nil {
		return nil, fmt.Errorf("kafka %s: %w", strings.Join(a.brokers, ","), err)
	}
	a.closers = append(a.closers, func() { _ = client.Close() })
	return client, nil
}

// show prints rows as a table, or value as JSON.
func (a *app) show(value any, header []string, rows [][]string) error {
	switch a.output {
	case "json":
		enc := json.NewEncoder(a.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(value)
	case "table":
		w := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, strings.Join(header, "\t"))
		for _, row := range rows {
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
		return w.Flush()
	default:
		return usage("--output is table or json, not %q", a.output)
	}
}

// confirm asks before something is done that cannot be undone. Without a person to answer, --yes is needed.
func (a *app) confirm(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if a.yes {
		return nil
	}
	fmt.Fprintf(a.stderr, "%s\nGo on? [y/N] ", what)
	line, _ := bufio.NewReader(a.stdin).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); answer == "y" || answer == "yes" {
		return nil
	}
	return found("not confirmed, nothing was done (--yes does not ask)")
}

// audit writes a line about something that was done: who, when, what, to whom. One JSON object on standard error, which no
// --output changes.
func (a *app) audit(action string, fields map[string]any) {
	line := map[string]any{"time": time.Now().UTC().Format(time.RFC3339Nano), "audit": action, "user": cmp.Or(os.Getenv("SUDO_USER"), os.Getenv("USER"), "unknown")}
	for k, v := range fields {
		line[k] = v
	}
	text, err := json.Marshal(line)
	if err != nil {
		text = []byte(fmt.Sprintf(`{"audit":%q,"error":%q}`, action, err))
	}
	fmt.Fprintln(a.stderr, string(text))
}

// notYet keeps the tree compiling while a command is being built.
func notYet(name string) *cobra.Command { return &cobra.Command{Use: name, Hidden: true} }
