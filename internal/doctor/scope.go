package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/pgschema"
)

// scopeRecords are what the stores know about who consumes what. Only Postgres can be asked for that.
type scopeRecords struct {
	known    bool
	topics   []scopeTopic
	progress []scopeProgress
	kept     map[string]bool // scopes that have rows for some minutes, as far as those show that expire first and last
}

type scopeTopic struct{ topic, scope string }

type scopeProgress struct {
	scope, topic string
	partition    int32
	behind       *time.Duration // nil: not known
	told         time.Duration  // since it was said
}

// askError is an error of the server with its code.
type askError struct {
	error
	code string
}

// readScopes adds what one store knows.
func (d *examination) readScopes(ctx context.Context, pool *pgxpool.Pool) *askError {
	rows, err := pool.Query(ctx, "SELECT DISTINCT topic, scope FROM "+pgschema.Table(d.in.Schema, "idem_scope_topics")+" ORDER BY 1, 2")
	if err != nil {
		return &askError{err, pgschema.Code(err)}
	}
	topics, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t scopeTopic, err error) {
		err = row.Scan(&t.topic, &t.scope)
		return t, err
	})
	if err != nil {
		return &askError{err, pgschema.Code(err)}
	}
	rows, err = pool.Query(ctx, `SELECT scope, topic, partition, clock_timestamp() - consumed_until, clock_timestamp() - updated_at
		FROM `+pgschema.Table(d.in.Schema, "idem_progress")+` ORDER BY scope, topic, partition`)
	if err != nil {
		return &askError{err, pgschema.Code(err)}
	}
	progress, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p scopeProgress, err error) {
		err = row.Scan(&p.scope, &p.topic, &p.partition, &p.behind, &p.told)
		return p, err
	})
	if err != nil {
		return &askError{err, pgschema.Code(err)}
	}
	s := &d.scopes
	s.known = true
	if s.kept == nil {
		s.kept = make(map[string]bool)
	}
	d.readKept(ctx, pool)
	s.topics, s.progress = append(s.topics, topics...), append(s.progress, progress...)
	return nil
}

// readKept looks which scopes have rows. Who may not read them, or has no tables, is told elsewhere.
func (d *examination) readKept(ctx context.Context, pool *pgxpool.Pool) {
	tables, err := pgschema.FindTables(ctx, pool, d.in.Schema)
	if err != nil {
		return
	}
	suffix := ""
	if tables.Layout == "compact" {
		suffix = "_read"
	}
	for _, table := range []string{"processed_events", "idempotency_keys"} {
		for _, order := range []string{"ASC", "DESC"} {
			rows, err := pool.Query(ctx, `SELECT DISTINCT scope FROM (SELECT scope, created_at FROM `+pgschema.Table(d.in.Schema, table+suffix)+
				` ORDER BY expires_at `+order+` LIMIT 1000) r WHERE created_at < clock_timestamp() - interval '5 minutes'`)
			if err != nil {
				return
			}
			scopes, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return
			}
			for _, scope := range scopes {
				d.scopes.kept[scope] = true
			}
		}
	}
}

// topicsOf returns what a scope consumes.
func (s *scopeRecords) topicsOf(scope string) (topics []string) {
	for _, t := range s.topics {
		if t.scope == scope {
			topics = append(topics, t.topic)
		}
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// checkScope compares the record of the stores with the group (rule 14, rule 8).
func (d *examination) checkScope(r *Findings) {
	scope := cmp.Or(d.in.Scope, d.in.Group)
	if !d.scopes.known || scope == "" {
		const why = "no Postgres store that could be asked, or neither --scope nor --group"
		r.say(Skipped, "store.scope", "", why, "")
		r.say(Skipped, "store.progress", "", why, "")
		return
	}
	on := "scope " + scope
	mine := d.scopes.topicsOf(scope)
	var foreign []string
	for _, topic := range d.opt.Topics {
		if slices.Contains(mine, topic) {
			continue
		}
		for _, t := range d.scopes.topics {
			if t.topic == topic {
				foreign = append(foreign, fmt.Sprintf("%s under %s", topic, t.scope))
			}
		}
	}
	remedy := "Config.Scope of the group that is continued; Config.NewScope if this is another consumer"
	text := "known under other scopes only: " + strings.Join(foreign, ", ")
	r.choose("store.scope", on, fmt.Sprintf("%d topics on record", len(mine)),
		choice{len(foreign) > 0 && d.noOffsets, Bad, text + ", and the group has committed nothing: all events there are would be new again, so that a worker refuses to start (rule 14)", remedy},
		choice{len(foreign) > 0, Warn, text + ": a renamed group handles what is delivered again a second time (rule 14)", remedy})
	d.checkProgress(r, on, scope)
}

// checkProgress looks for partitions that keep the whole scope from forgetting.
func (d *examination) checkProgress(r *Findings, on, scope string) {
	var open, late []string
	seen := 0
	for _, p := range d.scopes.progress {
		if p.scope != scope {
			continue
		}
		seen++
		name := fmt.Sprintf("%s/%d", p.topic, p.partition)
		switch {
		case p.behind == nil:
			open = append(open, name)
		case p.told > 24*time.Hour:
			late = append(late, fmt.Sprintf("%s (%s ago)", name, p.told.Round(time.Hour)))
		}
	}
	const effect = "nothing of the scope is deleted from the store meanwhile (rule 8)"
	r.choose("store.progress", on, fmt.Sprintf("%d partitions", seen),
		choice{seen == 0 && d.scopes.kept[scope], Warn, "the scope has rows and has recorded none: " + effect,
			"docs/embedding.md says how a loop of your own records progress; idem reap --wall-clock " + scope + " if no Kafka consumer uses the scope"},
		choice{seen == 0, Skipped, "the scope has recorded none yet", ""},
		choice{len(open) > 0, Warn, "the time of " + list(open) + " is not known: " + effect, "it is with the next record; of a topic that is no longer consumed: store.ForgetProgress"},
		choice{len(late) > 0, Warn, "nobody has consumed " + list(late) + ": " + effect, "start the workers; of a topic that is no longer consumed: store.ForgetProgress"})
}

// list names the first few.
func list(names []string) string {
	const some = 5
	text := strings.Join(names[:min(some, len(names))], ", ")
	if more := len(names) - some; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
