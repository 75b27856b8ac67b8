package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/idem-go/idem/consumer"
)

// doctorVerdict is what a check came to.
type doctorVerdict string

const (
	vOK      doctorVerdict = "ok"
	vWarn    doctorVerdict = "warn"    // works, and loses or doubles events under circumstances that the detail names
	vBad     doctorVerdict = "bad"     // loses, doubles or stops
	vUnknown doctorVerdict = "unknown" // could not be looked at: counts as a warning (rule 46)
	vSkipped doctorVerdict = "skipped" // does not apply here
)

// finding is what one check says of one thing. IDs are for scripts and stay.
type finding struct {
	ID      string        `json:"id"`
	On      string        `json:"on"` // which topic, ledger, group; empty: the settings
	Title   string        `json:"title"`
	Verdict doctorVerdict `json:"verdict"`
	Detail  string        `json:"detail"`
	Remedy  string        `json:"remedy,omitempty"` // what to type, where there is such a thing
}

// findings are in the order of the checks.
type findings []finding

func (r *findings) say(v doctorVerdict, id, on, detail, remedy string) {
	*r = append(*r, finding{ID: id, On: on, Title: doctorTitles[id], Verdict: v, Detail: detail, Remedy: remedy})
}

// choose says the first verdict that applies, and ok with fine if none does.
func (r *findings) choose(id, on, fine string, cases ...choice) {
	for _, c := range cases {
		if c.when {
			r.say(c.verdict, id, on, c.detail, c.remedy)
			return
		}
	}
	r.say(vOK, id, on, fine, "")
}

type choice struct {
	when           bool
	verdict        doctorVerdict
	detail, remedy string
}

// count of findings with one of these verdicts.
func (r findings) count(verdicts ...doctorVerdict) (n int) {
	for _, f := range r {
		for _, v := range verdicts {
			if f.Verdict == v {
				n++
			}
		}
	}
	return n
}

// doctorOptions are the settings of the workers, as far as only their program knows them.
type doctorOptions struct {
	offline     bool
	topics      []string
	dlqTopic    string
	retryDelays []time.Duration
	cooperative bool
	durable     bool

	retention, timeout, lease, grace time.Duration
	rebalance, session               time.Duration
	lanes, poolSize, instances       int
}

func (o *doctorOptions) flags(f *pflag.FlagSet) {
	group := defaultGroup()
	f.BoolVar(&o.offline, "offline", false, "check the settings against each other only, without network")
	f.StringSliceVar(&o.topics, "topics", nil, "topics consumed; by default those the ledger has on record, else those with committed offsets")
	f.StringVar(&o.dlqTopic, "dlq-topic", "{topic}.{group}.dlq", "name of the dead-letter topic of a topic")
	f.DurationSliceVar(&o.retryDelays, "retry-delays", nil, "delays of the group's retry topics, such as 5s,1m")
	f.BoolVar(&o.cooperative, "cooperative", false, "the workers set Config.Cooperative")
	f.BoolVar(&o.durable, "durable", false, "the workers use pgstore.Durable")
	f.DurationVar(&o.retention, "retention", 7*24*time.Hour, "idem.Retention of the handlers, the shortest")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "idem.Timeout of the handlers, the longest")
	f.DurationVar(&o.lease, "lease", 30*time.Second, "Config.Lease")
	f.DurationVar(&o.grace, "grace", 30*time.Second, "Config.Grace")
	f.DurationVar(&o.rebalance, "rebalance-timeout", group.Rebalance.Timeout, "sarama's Consumer.Group.Rebalance.Timeout")
	f.DurationVar(&o.session, "session-timeout", group.Session.Timeout, "sarama's Consumer.Group.Session.Timeout")
	f.IntVar(&o.lanes, "lanes", 1, "Config.Lanes")
	f.IntVar(&o.poolSize, "pool-size", 0, "connections of a worker's Postgres pool; by default pool_max_conns of the URL, or what pgx makes of this host")
	f.IntVar(&o.instances, "instances", 1, "how many workers run at once")
}

// defaultGroup has the times a consumer uses unless it is told otherwise.
func defaultGroup() struct {
	Session, Rebalance struct{ Timeout time.Duration }
} {
	var g struct {
		Session, Rebalance struct{ Timeout time.Duration }
	}
	sc, err := consumer.DefaultSaramaConfig(consumer.Config{})
	if err != nil { // the defaults fit each other: a test says so
		sc = sarama.NewConfig()
	}
	g.Session.Timeout, g.Rebalance.Timeout = sc.Consumer.Group.Session.Timeout, sc.Consumer.Group.Rebalance.Timeout
	return g
}

func (o *doctorOptions) validate() error {
	for name, d := range map[string]time.Duration{
		"retention": o.retention, "timeout": o.timeout, "lease": o.lease, "grace": o.grace,
		"rebalance-timeout": o.rebalance, "session-timeout": o.session,
	} {
		if d <= 0 {
			return usage("--%s must be positive", name)
		}
	}
	for _, d := range o.retryDelays {
		if d <= 0 {
			return usage("--retry-delays must be positive")
		}
	}
	if o.lanes < 1 || o.instances < 1 || o.poolSize < 0 {
		return usage("--lanes and --instances must be at least 1, and --pool-size not negative")
	}
	if !strings.Contains(o.dlqTopic, "{topic}") {
		return usage("--dlq-topic must contain {topic}: letters of several topics must not meet")
	}
	return nil
}

// serviceLimit bounds the checks of one ledger.
const serviceLimit = 30 * time.Second

// doctor is one examination.
type doctor struct {
	*app
	opt doctorOptions
	now func() time.Time // tests have a clock of their own

	scopes    scopeRecords // what the ledgers have on record
	noOffsets bool         // the group has committed nothing on its topics
}

func newDoctorCmd(a *app) *cobra.Command {
	d := &doctor{app: a, now: time.Now}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for settings of workers, Kafka and ledgers that lose or double events",
		Long: `Look for settings of workers, Kafka and ledgers that lose or double events, and say how to mend them.

What only the program of the workers knows is said by flags; their defaults are the library's. Nothing is changed:
the test of unique keys writes in a transaction that is rolled back.

The exit code is 1 if a check is bad, 0 if there is nothing worse than warnings. See docs/doctor.md for each check.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := d.examine(cmd.Context())
			if err != nil {
				return err
			}
			return d.tell(r)
		},
	}
	d.opt.flags(cmd.Flags())
	return cmd
}

// examine runs all checks. Its error is one of usage, or that ctx ended: what a check cannot do is a finding.
func (d *doctor) examine(ctx context.Context) (findings, error) {
	if err := d.opt.validate(); err != nil {
		return nil, err
	}
	if !d.opt.offline && len(d.brokers) == 0 && len(d.ledgers) == 0 {
		return nil, usage("nothing to look at: give --brokers and --group, --ledger, or --offline")
	}
	if len(d.brokers) > 0 && !d.opt.offline {
		if _, err := d.theGroup(); err != nil {
			return nil, err
		}
	}
	var all, ledgers findings
	d.checkFlags(&all)
	if d.opt.offline {
		return all, nil
	}
	for _, url := range d.ledgers { // before Kafka, since they know the topics
		d.checkLedger(ctx, &ledgers, url)
	}
	if err := d.checkKafka(ctx, &all); err != nil {
		return nil, err
	}
	all = append(all, ledgers...)
	d.checkScope(&all)
	return all, nil
}

// checkLedger looks at one ledger, for a bounded time.
func (d *doctor) checkLedger(ctx context.Context, r *findings, url string) {
	ctx, cancel := context.WithTimeout(ctx, serviceLimit)
	defer cancel()
	switch ledgerKind(url) {
	case kindPostgres:
		d.checkPostgres(ctx, r, url)
	case kindRedis:
		d.checkRedis(ctx, r, url)
	default: // checkFlags has said so
	}
}

// tell prints what was found. The error carries the exit code.
func (d *doctor) tell(r findings) error {
	worst := vOK
	switch {
	case r.count(vBad) > 0:
		worst = vBad
	case r.count(vWarn, vUnknown) > 0:
		worst = vWarn
	}
	value := struct {
		Verdict doctorVerdict `json:"verdict"`
		Checks  []finding     `json:"checks"`
	}{worst, r}
	var rows [][]string
	for _, f := range r {
		rows = append(rows, []string{strings.ToUpper(string(f.Verdict)), f.ID, cmp.Or(f.On, "-"), f.Detail})
		if f.Remedy != "" {
			rows = append(rows, []string{"", "", "", "  mend: " + f.Remedy})
		}
	}
	if err := d.show(value, []string{"VERDICT", "CHECK", "ON", "FOUND"}, rows); err != nil {
		return err
	}
	fmt.Fprintf(d.stderr, "%d bad, %d warnings, %d unknown, %d ok, %d skipped\n",
		r.count(vBad), r.count(vWarn), r.count(vUnknown), r.count(vOK), r.count(vSkipped))
	if worst == vBad {
		return &exitError{code: exitFound}
	}
	return nil
}
