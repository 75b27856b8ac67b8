package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/idem-go/idem/internal/doctor"
)

// doctorOptions are the settings of the workers, as far as only their program knows them.
type doctorOptions struct {
	doctor.Options
	offline  bool
	dlqTopic string
}

func (o *doctorOptions) flags(f *pflag.FlagSet) {
	f.BoolVar(
		&o.offline, "offline", false, "check the settings against each other only, without network",
	)
	o.workerFlags(f)
}

// workerFlags are those that describe the workers.
func (o *doctorOptions) workerFlags(f *pflag.FlagSet) {
	d := doctor.Defaults()
	f.StringSliceVar(
		&o.Topics,
		"topics",
		nil,
		"topics consumed; by default those the store has on record, else those with committed "+
			"offsets",
	)
	f.StringVar(
		&o.dlqTopic, "dlq-topic", "{topic}.{group}.dlq", "name of the dead-letter topic of a topic",
	)
	f.DurationSliceVar(
		&o.RetryDelays, "retry-delays", nil, "delays of the group's retry topics, such as 5s,1m",
	)
	f.BoolVar(&o.Cooperative, "cooperative", false, "the workers set Config.Cooperative")
	f.BoolVar(&o.Durable, "durable", false, "the workers use pgstore.Durable")
	f.DurationVar(
		&o.Retention, "retention", d.Retention, "idem.Retention of the handlers, the shortest",
	)
	f.DurationVar(&o.Timeout, "timeout", d.Timeout, "idem.Timeout of the handlers, the longest")
	f.DurationVar(&o.Lease, "lease", d.Lease, "Config.Lease")
	f.DurationVar(&o.Grace, "grace", d.Grace, "Config.Grace")
	f.DurationVar(
		&o.Rebalance, "rebalance-timeout", d.Rebalance, "sarama's Consumer.Group.Rebalance.Timeout",
	)
	f.DurationVar(
		&o.Session, "session-timeout", d.Session, "sarama's Consumer.Group.Session.Timeout",
	)
	f.IntVar(&o.Lanes, "lanes", d.Lanes, "Config.Lanes")
	f.IntVar(
		&o.PoolSize,
		"pool-size",
		0,
		"connections of a worker's Postgres pool; by default pool_max_conns of the URL, or the "+
			"default of pgx on this host",
	)
	f.IntVar(&o.Instances, "instances", d.Instances, "how many workers run at once")
}

func (o *doctorOptions) validate() error {
	for name, d := range map[string]time.Duration{
		"retention": o.Retention, "timeout": o.Timeout, "lease": o.Lease, "grace": o.Grace,
		"rebalance-timeout": o.Rebalance, "session-timeout": o.Session,
	} {
		if d <= 0 {
			return usage("--%s must be positive", name)
		}
	}
	for _, d := range o.RetryDelays {
		if d <= 0 {
			return usage("--retry-delays must be positive")
		}
	}
	if o.Lanes < 1 || o.Instances < 1 || o.PoolSize < 0 {
		return usage("--lanes and --instances must be at least 1, and --pool-size not negative")
	}
	if !strings.Contains(o.dlqTopic, "{topic}") {
		return usage(
			"--dlq-topic must contain {topic}: dead letters of several topics must not meet",
		)
	}
	return nil
}

func newDoctorCmd(a *app) *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for settings of workers, Kafka and stores that lose or double events",
		Long: "Looks for settings of workers, Kafka and stores that lose or double events, and\n" +
			"prints a remedy for each finding. The command changes no state: the test of\n" +
			"unique keys writes in a transaction and rolls back.\n" +
			"\n" +
			"Flags describe the settings that only the workers' program has. The defaults of\n" +
			"these flags are the defaults of the library.\n" +
			"\n" +
			"The exit code is 1 if a check is bad, and 0 if the worst findings are warnings.\n" +
			"docs/doctor.md describes each check.",
		Example: "  idem doctor -G billing --brokers localhost:9092 " +
			"--store postgres://idem@db/shop\n" +
			"  idem doctor --offline --timeout 20s --lanes 8",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := a.examine(cmd.Context(), &o)
			if err != nil {
				return err
			}
			return a.showFindings(r)
		},
	}
	o.flags(cmd.Flags())
	return cmd
}

// examine runs all checks. The error is one of usage, or the end of ctx. A check that fails to run
// is a finding.
func (a *app) examine(ctx context.Context, o *doctorOptions) (doctor.Findings, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if !o.offline && len(a.brokers) == 0 && len(a.stores) == 0 {
		return nil, usage("no checks chosen: give --brokers and --group, --store, or --offline")
	}
	in := a.doctorInput(o)
	if len(a.brokers) > 0 && !o.offline {
		if _, err := a.theGroup(); err != nil {
			return nil, err
		}
		if _, err := a.kafkaConfig(); err != nil { // flags that cannot be, before anything is asked
			return nil, err
		}
		in.Kafka = a.kafka
	}
	for _, url := range a.stores {
		in.Stores = append(
			in.Stores,
			doctor.Store{
				URL: url,
				OpenRedis: func(ctx context.Context) (redis.UniversalClient, string, error) {
					l, err := a.openStore(ctx, url)
					if err != nil {
						return nil, "", err
					}
					return l.redis, l.name, nil
				},
				OpenSQL: func(ctx context.Context) (doctor.Checker, string, error) {
					l, err := a.openStore(ctx, url)
					if err != nil {
						return nil, "", err
					}
					return l.sql, l.name, nil
				},
			},
		)
	}
	return doctor.Examine(ctx, in)
}

// doctorInput returns the settings to examine, without stores and Kafka.
func (a *app) doctorInput(o *doctorOptions) doctor.Input {
	in := doctor.Input{
		Options: o.Options, Group: a.group, Scope: a.scope, Brokers: a.brokers,
		Schema: a.schema, Offline: o.offline, Redact: a.redact,
	}
	in.DeadLetterTopic = o.deadLetterTopic(a.group)
	return in
}

// showFindings prints the findings. The error has the exit code.
func (a *app) showFindings(r doctor.Findings) error {
	value := struct {
		Verdict doctor.Verdict  `json:"verdict"`
		Checks  doctor.Findings `json:"checks"`
	}{r.Verdict(), r}
	var rows [][]string
	for _, f := range r {
		rows = append(
			rows,
			[]string{
				strings.ToUpper(string(f.Verdict)), f.ID, cmp.Or(f.On, "-"), oneLine(f.Detail),
			},
		)
		if f.Remedy != "" {
			rows = append(rows, []string{"", "", "", "  remedy: " + oneLine(f.Remedy)})
		}
	}
	if err := a.show(value, []string{"VERDICT", "CHECK", "ON", "FOUND"}, rows); err != nil {
		return err
	}
	fmt.Fprintf(
		a.stderr,
		"%d bad, %d warnings, %d unknown, %d ok, %d skipped\n",
		r.Count(
			doctor.Bad,
		),
		r.Count(doctor.Warn),
		r.Count(doctor.Unknown),
		r.Count(doctor.OK),
		r.Count(doctor.Skipped),
	)
	if value.Verdict == doctor.Bad {
		return &exitError{code: exitFound}
	}
	return nil
}
