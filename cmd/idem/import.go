package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/dedup"
)

// importFlags are those of idem import.
type importFlags struct {
	table, tableURL        string
	topic                  string
	fromTime, toTime       string
	toCommitted            bool
	types                  []string
	tenant                 string
	idHeader, idJSON       string
	idLegacy               bool
	typeHeader, typeJSON   string
	typeFixed              string
	tenantHeader, tenantJS string
	retention              time.Duration
	tx, dryRun             bool
}

func newImportCmd(a *app) *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Fill a store with events that were handled before there was one",
		Long: `Fill a store with events that were handled before there was one, so that a consumer which begins to use it does not
handle them again. What the store knows already stays as it is, so an import may be repeated, and is when it was cut short.

--from-table reads a query of a Postgres, with a column event_id and, if there are, type, tenant and time.
--from-topic reads a topic: what lies below the offsets that --group has committed (--to-committed) or before a time
(--to-time). IDs and types are found as handlers find them without options, or where the flags say; the flags must say what
the handlers' options say, else the handlers look for other events than these. Stop the old consumer first.`,
		Example: "  idem import --from-table 'SELECT payment_id AS event_id, created_at AS time FROM payments' --type payment.captured --tx -G billing\n" +
			"  idem import --from-topic orders --to-committed -G billing --dry-run",
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runImport(cmd.Context(), &f) },
	}
	f.add(a, cmd)
	return cmd
}

func (f *importFlags) add(a *app, cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(
		&f.table, "from-table", "",
		"`query` with a column event_id and, if there are, type, tenant, time",
	)
	url := &urlFlag{
		name: "from-url", env: "IDEM_IMPORT_URL", use: func(urls []string) { f.tableURL = urls[0] },
	}
	s.Var(
		a.addURLFlag(url),
		url.name,
		"postgres:// `URL` for the query, or @FILE (env IDEM_IMPORT_URL), the store's by default",
	)
	s.StringVar(&f.topic, "from-topic", "", "`topic` to read")
	s.StringVar(
		&f.fromTime, "from-time", "",
		"of a topic, only records from this time on, such as 2026-01-31T12:00:00Z",
	)
	s.StringVar(&f.toTime, "to-time", "", "of a topic, only records before this time")
	s.BoolVar(
		&f.toCommitted, "to-committed", false,
		"of a topic, only records below the offsets that --group has committed",
	)
	s.StringSliceVar(
		&f.types, "type", nil,
		"of a table, the type of all rows; of a topic, only events of these types",
	)
	s.StringVar(&f.tenant, "tenant", "", "tenant of all events")
	s.StringVar(&f.idHeader, "id-header", "", "the ID is in this header")
	s.StringVar(&f.idJSON, "id-json", "", "the ID is in this JSON `field`, such as order.id")
	s.BoolVar(
		&f.idLegacy, "id-legacy", false,
		"the handler has idem.LegacyStandardID: joined IDs have no word in front",
	)
	s.StringVar(&f.typeHeader, "type-header", "", "the type is in this header")
	s.StringVar(&f.typeJSON, "type-json", "", "the type is in this JSON `field`")
	s.StringVar(&f.typeFixed, "type-fixed", "", "all records of the topic are of this type")
	s.StringVar(&f.tenantHeader, "tenant-header", "", "the tenant is in this header")
	s.StringVar(&f.tenantJS, "tenant-json", "", "the tenant is in this JSON `field`")
	s.DurationVar(
		&f.retention, "retention", 7*24*time.Hour,
		"how long the store keeps them from now on, at least as long as the handler's Retention",
	)
	s.BoolVar(&f.tx, "tx", false, "the handler is a transactional one (OnTx, OnBatchTx)")
	s.BoolVar(&f.dryRun, "dry-run", false, "read and count, change nothing")
	cmd.MarkFlagsMutuallyExclusive("from-table", "from-topic")
	cmd.MarkFlagsOneRequired("from-table", "from-topic")
	for _, group := range [][]string{
		{"id-header", "id-json", "id-legacy"}, {"type-header", "type-json", "type-fixed"}, {"tenant", "tenant-header", "tenant-json"}, {"to-time", "to-committed"},
	} {
		cmd.MarkFlagsMutuallyExclusive(group...)
	}
}

// imported counts the records that were read, by result.
type imported struct {
	Store      string `json:"store"`
	From       string `json:"from"`
	DryRun     bool   `json:"dry_run,omitempty"`
	Read       int64  `json:"read"`
	Added      int64  `json:"added"`       // or would be, in a dry run
	Known      int64  `json:"known"`       // before the import, or twice in the input
	NoIdentity int64  `json:"no_identity"` // no ID or no type
	Invalid    int64  `json:"invalid"`     // one that no store can hold, or several that disagree
	OtherTypes int64  `json:"other_types"` // not among --type
}

// importer puts events into a store, many at a time.
type importer struct {
	a     *app
	f     *importFlags
	store *openedStore
	scope string

	counts imported
	batch  []dedup.Imported
	told   time.Time
	odd    int // shown examples of unusable records
}

const (
	importBatch  = 1000
	importTell   = 5 * time.Second
	examplesShow = 5
)

func (a *app) runImport(ctx context.Context, f *importFlags) error {
	scope, err := a.theScope()
	if err != nil {
		return err
	}
	if f.retention <= 0 {
		return usage("--retention must be positive")
	}
	ledgers, err := a.openStores(ctx)
	if err != nil {
		return err
	}
	l := ledgers[0]
	switch {
	case len(ledgers) > 1:
		return usage("import fills one store: give one --store")
	case f.tx && l.pg == nil:
		return usage("--tx: the store of a transactional handler is in Postgres, %s is not", l.name)
	}
	im := &importer{
		a: a, f: f, store: l, scope: scope, told: time.Now(),
		counts: imported{Store: l.name, DryRun: f.dryRun},
	}
	read, err := im.source(ctx)
	if err != nil {
		return err
	}
	work := func() error { return im.run(ctx, read) }
	if f.dryRun {
		err = work()
	} else {
		fields := map[string]any{"store": l.name, "scope": scope, "from": im.counts.From, "tx": f.tx}
		err = a.audited("import", fields, func() error {
			defer func() { fields["read"], fields["added"] = im.counts.Read, im.counts.Added }()
			err := a.confirm("%s\nof scope %q in %s will count as handled: no delivery of these events runs.", im.counts.From, scope, l.name)
			if err != nil {
				return err
			}
			return work()
		})
	}
	if err != nil {
		return err
	}
	return a.show(im.counts, nil, im.counts.rows())
}

// source opens the input and describes it.
func (im *importer) source(ctx context.Context) (func(context.Context) error, error) {
	if im.f.table != "" {
		return im.openTable(ctx)
	}
	return im.openTopic(ctx)
}

func (im *importer) run(ctx context.Context, read func(context.Context) error) error {
	err := read(ctx)
	if err == nil {
		err = im.flush(ctx)
	}
	if err == nil {
		return nil
	}
	if im.f.dryRun {
		return err
	}
	return fmt.Errorf(
		"after %d were read and %d added (repeat the command, what was added stays): %w",
		im.counts.Read, im.counts.Added, err,
	)
}

// add takes one event. where names the place in the input, for errors.
func (im *importer) add(
	ctx context.Context, where string, typ, tenant, id string, origin dedup.Origin,
) error {
	key := dedup.Key{Tenant: tenant, Scope: im.scope, Type: typ, ID: id}
	if err := key.Validate(); err != nil {
		im.counts.Invalid++
		im.example(where, err)
		return nil
	}
	im.batch = append(
		im.batch, dedup.Imported{Key: key, Origin: origin, Retention: im.f.retention, Tx: im.f.tx},
	)
	if len(im.batch) < importBatch {
		return nil
	}
	return im.flush(ctx)
}

// flush writes the batch, or counts the events of a dry run.
func (im *importer) flush(ctx context.Context) error {
	if len(im.batch) == 0 {
		return ctx.Err()
	}
	put := im.store.operator().Import
	if im.f.dryRun {
		put = im.wouldAdd
	}
	added, err := put(ctx, im.batch)
	if err != nil {
		return fmt.Errorf("%s: %w", im.store.name, err)
	}
	im.counts.Added += int64(added)
	im.counts.Known += int64(len(im.batch) - added)
	im.batch = im.batch[:0]
	im.tell()
	return ctx.Err()
}

// wouldAdd counts the unknown keys. A key that comes again in a later batch is counted again.
func (im *importer) wouldAdd(ctx context.Context, batch []dedup.Imported) (added int, err error) {
	keys := make([]dedup.Key, len(batch))
	for i := range batch {
		keys[i] = batch[i].Key
	}
	slices.SortFunc(keys, dedup.Key.Compare)
	keys = slices.Compact(keys)
	records, err := im.store.operator().Inspect(ctx, keys...)
	if err != nil {
		return 0, err
	}
	known := 0
	for _, r := range records {
		if r.Tx == im.f.tx {
			known++
		}
	}
	return len(keys) - known, nil
}

// tell prints the progress from time to time.
func (im *importer) tell() {
	if time.Since(im.told) < importTell {
		return
	}
	im.told = time.Now()
	fmt.Fprintf(
		im.a.stderr, "idem: %d read, %d added, %d known, %d of no use\n", im.counts.Read,
		im.counts.Added, im.counts.Known, im.counts.NoIdentity+im.counts.Invalid,
	)
}

// example shows the first of those that could not be used.
func (im *importer) example(where string, err error) {
	if im.odd++; im.odd <= examplesShow {
		fmt.Fprintf(
			im.a.stderr, "idem: not imported: %s: %s\n", where, plain(im.a.redact(err.Error())),
		)
	}
}

func (c *imported) rows() [][]string {
	added := "added"
	if c.DryRun {
		added = "would be added"
	}
	n := func(i int64) string { return strconv.FormatInt(i, 10) }
	return [][]string{
		{
			"FROM", strings.Join(strings.Fields(c.From), " "),
		}, {"TO", c.Store}, {"read", n(c.Read)}, {added, n(c.Added)},
		{
			"known before, or twice", n(c.Known),
		}, {"without identity", n(c.NoIdentity)}, {"invalid identity", n(c.Invalid)},
		{"of other types", n(c.OtherTypes)},
	}
}

// timeOf reads a time of the command line.
func timeOf(flag, text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usage(
		"--%s: %w", flag,
		errors.New("a time such as 2026-01-31T12:00:00Z, or a day in UTC such as 2026-01-31"),
	)
}
