package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
)

// importFlags are those of idem import.
type importFlags struct {
	table, tableURL string
	topic           string
	since, until    string
	toCommitted     bool
	types           []string
	identityFlags
	retention time.Duration
	tx        bool
}

// imported counts the records that were read, by result.
type imported struct {
	dryRunView
	Store      string `json:"store"`
	From       string `json:"from"`
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
	seen   *progress
	total  int64 // records to read; 0: not known
	about  bool  // the total is an estimate
	odd    int   // shown examples of unusable records
}

const (
	importBatch  = 1000
	examplesShow = 5
)

func (im *importer) run(ctx context.Context, read func(context.Context) error) error {
	im.seen = im.a.progress("records read", im.total)
	im.seen.estimate = im.about
	defer im.seen.end()
	err := read(ctx)
	if err == nil {
		err = im.flush(ctx)
	}
	if err == nil {
		return nil
	}
	if im.a.dryRun {
		return err
	}
	return fmt.Errorf(
		"after %d were read and %d added (repeat the command: added events stay): %w",
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
	if im.a.dryRun {
		put = im.wouldAdd
	}
	added, err := put(ctx, im.batch)
	if err != nil {
		return fmt.Errorf("%s: %w", im.store.name, err)
	}
	im.counts.Added += int64(added)
	im.counts.Known += int64(len(im.batch) - added)
	im.batch = im.batch[:0]
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

// count counts a record that was read, and shows the progress.
func (im *importer) count() {
	im.counts.Read++
	im.seen.add(1, func() string {
		return fmt.Sprintf("%d added, %d known, %d of no use", im.counts.Added, im.counts.Known,
			im.counts.NoIdentity+im.counts.Invalid)
	})
}

// example shows the first of those that could not be used.
func (im *importer) example(where string, err error) {
	if im.odd++; im.odd <= examplesShow {
		im.seen.end()
		fmt.Fprintf(
			im.a.stderr, "idem: not imported: %s: %s\n", where, oneLine(im.a.redact(err.Error())),
		)
	}
}

func (c *imported) rows() [][]string {
	n := func(i int64) string { return strconv.FormatInt(i, 10) }
	return [][]string{
		{"FROM", strings.Join(strings.Fields(c.From), " ")}, {"TO", c.Store},
		{"read", n(c.Read)}, {"added", n(c.Added)}, {"known before, or twice", n(c.Known)},
		{"without identity", n(c.NoIdentity)}, {"invalid identity", n(c.Invalid)},
		{"of other types", n(c.OtherTypes)},
	}
}
