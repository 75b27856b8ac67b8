package main

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"
)

func newImportCmd(a *app) *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Fill a store with events that were handled before there was one",
		Long: "Fills a store with events that were handled before the store existed, so that a\n" +
			"consumer which begins to use Idem skips them. Known events stay as they are: an\n" +
			"import can be repeated, for example after an interruption.\n" +
			"\n" +
			"--from-table reads a query of a Postgres database, with a column event_id and\n" +
			"optional columns type, tenant and time.\n" +
			"\n" +
			"--from-topic reads a topic below the offsets that --group has committed\n" +
			"(--to-committed), or before a time (--until). By default IDs and types are read\n" +
			"as handlers without options read them. If your handlers have options for\n" +
			"identity, give the same by flags: with other flags the import writes other keys\n" +
			"than the handlers look up. Stop the old consumer first.",
		Example: "  idem import --from-table 'SELECT payment_id AS event_id FROM payments' " +
			"--type paid --tx -G billing\n" +
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
		"`query` with a column event_id and optional columns type, tenant, time",
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
	s.StringVar(&f.since, "since", "", "of a topic, only records at or after `time`: "+timeForms)
	s.StringVar(&f.until, "until", "", "of a topic, only records before `time`")
	oldName(s, "from-time", "since")
	oldName(s, "to-time", "until")
	s.BoolVar(
		&f.toCommitted, "to-committed", false,
		"of a topic, only records below the offsets that --group has committed",
	)
	s.StringSliceVar(
		&f.types, "type", nil,
		"of a table, the type of all rows; of a topic, only events of these types",
	)
	s.StringVar(&f.tenant, "tenant", "", "tenant of all events")
	f.identityFlags.add(cmd)
	s.StringVar(&f.typeFixed, "type-fixed", "", "all records of the topic are of this type")
	s.DurationVar(
		&f.retention, "retention", 7*24*time.Hour,
		"how long the store keeps the events from now on, at least the handler's Retention",
	)
	s.BoolVar(&f.tx, "tx", false, "the handler is a transactional one (OnTx, OnBatchTx)")
	cmd.MarkFlagsMutuallyExclusive("from-table", "from-topic")
	cmd.MarkFlagsOneRequired("from-table", "from-topic")
	for _, group := range [][]string{
		{"type-header", "type-json", "type-fixed"}, {"until", "to-committed"},
		{"to-time", "to-committed"}, {"until", "to-time"}, {"since", "from-time"},
	} {
		cmd.MarkFlagsMutuallyExclusive(group...)
	}
}

func (a *app) runImport(ctx context.Context, f *importFlags) error {
	scope, err := a.theScope()
	if err != nil {
		return err
	}
	if f.retention <= 0 {
		return usage("--retention must be positive")
	}
	stores, err := a.openStores(ctx)
	if err != nil {
		return err
	}
	l := stores[0]
	switch {
	case len(stores) > 1:
		return usage("import fills one store: give one --store")
	case f.tx && !l.hasTables():
		return usage("--tx: the store of a transactional handler is in a SQL database, "+
			"such as Postgres, and %s is not", l.name)
	}
	im := &importer{
		a: a, f: f, store: l, scope: scope,
		counts: imported{dryRunView: dryRunView{a.dryRun}, Store: l.name},
	}
	fields := map[string]any{
		"store": l.name, "scope": scope, "from": cmp.Or(f.table, f.topic), "tx": f.tx,
	}
	err = a.audited("import", fields, func() error {
		defer func() { fields["read"], fields["added"] = im.counts.Read, im.counts.Added }()
		read, err := im.source(ctx)
		if err != nil {
			return err
		}
		fields["from"] = im.counts.From
		err = unlessDryRun(a.confirm(
			"%s\nof scope %q in %s will count as handled: no delivery of these events runs.",
			im.counts.From, scope, l.name,
		))
		if err != nil {
			return err
		}
		return im.run(ctx, read) // only counts in a dry run
	})
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
