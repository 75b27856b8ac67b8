package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/pgschema"
	"github.com/idem-go/idem/internal/words"
)

// scopeRecords are the scopes that the stores have on record. Only Postgres has such records.
type scopeRecords struct {
	known    bool
	topics   []scopeTopic
	progress []scopeProgress
	kept     map[string]bool // scopes with rows older than 5 minutes: see readKept
}

type scopeTopic struct{ topic, scope string }

type scopeProgress struct {
	scope, topic string
	partition    int32
	behind       *time.Duration // nil: not known
	told         time.Duration  // since the record was written
}

// read adds the records of one store.
func (s *scopeRecords) read(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	rows, err := pool.Query(ctx, "SELECT DISTINCT topic, scope FROM "+
		pgschema.Table(schema, "idem_scope_topics")+" ORDER BY 1, 2")
	if err != nil {
		return err
	}
	topics, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t scopeTopic, err error) {
		err = row.Scan(&t.topic, &t.scope)
		return t, err
	})
	if err != nil {
		return err
	}
	rows, err = pool.Query(ctx, `SELECT scope, topic, partition,
			clock_timestamp() - consumed_until, clock_timestamp() - updated_at
		FROM `+pgschema.Table(schema, "idem_progress")+` ORDER BY scope, topic, partition`)
	if err != nil {
		return err
	}
	progress, err := pgx.CollectRows(rows,
		func(row pgx.CollectableRow) (p scopeProgress, err error) {
			err = row.Scan(&p.scope, &p.topic, &p.partition, &p.behind, &p.told)
			return p, err
		})
	if err != nil {
		return err
	}
	s.known = true
	if s.kept == nil {
		s.kept = make(map[string]bool)
	}
	s.readKept(ctx, pool, schema)
	s.topics, s.progress = append(s.topics, topics...), append(s.progress, progress...)
	return nil
}

// readKept finds the scopes that have rows older than 5 minutes, among the first and the last rows
// to expire. Other checks report missing tables and rights.
func (s *scopeRecords) readKept(ctx context.Context, pool *pgxpool.Pool, schema string) {
	tables, err := pgschema.FindTables(ctx, pool, schema)
	if err != nil {
		return
	}
	suffix := ""
	if tables.Layout == "compact" {
		suffix = "_read"
	}
	for _, table := range []string{"processed_events", "idempotency_keys"} {
		for _, order := range []string{"ASC", "DESC"} {
			rows, err := pool.Query(ctx, `SELECT DISTINCT scope FROM (
					SELECT scope, created_at FROM `+pgschema.Table(schema, table+suffix)+`
					ORDER BY expires_at `+order+` LIMIT 1000) r
				WHERE created_at < clock_timestamp() - interval '5 minutes'`)
			if err != nil {
				return
			}
			scopes, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return
			}
			for _, scope := range scopes {
				s.kept[scope] = true
			}
		}
	}
}

// topicsOf returns the topics of a scope.
func (s *scopeRecords) topicsOf(scope string) (topics []string) {
	for _, t := range s.topics {
		if t.scope == scope {
			topics = append(topics, t.topic)
		}
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// check compares the records with the topics of the group (rule 14, rule 8). No consumed topics
// means that they are not known.
func (s *scopeRecords) check(r *Findings, scope string, consumed []string, noOffsets bool) {
	if !s.known || scope == "" {
		const why = "no Postgres store could be read, or neither --scope nor --group is given"
		r.say(Skipped, "store.scope", "", why, "")
		r.say(Skipped, "store.progress", "", why, "")
		return
	}
	on := "scope " + scope
	mine := s.topicsOf(scope)
	var foreign []string
	for _, topic := range consumed {
		if slices.Contains(mine, topic) {
			continue
		}
		for _, t := range s.topics {
			if t.topic == topic {
				foreign = append(foreign, fmt.Sprintf("%s under %s", topic, t.scope))
			}
		}
	}
	const remedy = "Config.Scope of the group that this one continues; " +
		"Config.NewScope if this is another consumer"
	text := "on record under other scopes only: " + strings.Join(foreign, ", ")
	r.choose("store.scope", on, words.Plain(len(mine), "topic")+" on record",
		choice{len(consumed) == 0 && len(mine) == 0 && len(s.topics) > 0, Unknown,
			"the topics of the group are not known, and other scopes have topics on record",
			"idem doctor --topics ..."},
		choice{len(foreign) > 0 && noOffsets, Bad, text + ", and the group has no committed " +
			"offset: all events would be new again, so a worker refuses to start", remedy},
		choice{len(foreign) > 0, Warn,
			text + ": a renamed group handles redelivered events a second time", remedy})
	s.checkProgress(r, on, scope)
}

// checkProgress finds the partitions that keep the store from deleting rows of the scope.
func (s *scopeRecords) checkProgress(r *Findings, on, scope string) {
	var open, late []string
	seen := 0
	for _, p := range s.progress {
		if p.scope != scope {
			continue
		}
		seen++
		name := fmt.Sprintf("%s/%d", p.topic, p.partition)
		switch {
		case p.behind == nil:
			open = append(open, name)
		case p.told > day:
			late = append(late, fmt.Sprintf("%s (%s ago)", name, p.told.Round(time.Hour)))
		}
	}
	const effect = "the store deletes no row of the scope until then"
	const forget = "for a topic that is no longer consumed: store.ForgetProgress"
	r.choose("store.progress", on, words.Plain(seen, "partition"),
		choice{seen == 0 && s.kept[scope], Warn,
			"the scope has rows, and no progress is recorded: " + effect,
			"docs/embedding.md shows how a loop of your own records progress; " +
				"idem reap --wall-clock " + scope + " if no Kafka consumer uses the scope"},
		choice{seen == 0, Skipped, "no progress is recorded yet", ""},
		choice{len(open) > 0, Warn,
			"the consumed time of " + list(open) + " is not known: " + effect,
			"the next record sets the time; " + forget},
		choice{len(late) > 0, Warn, "no worker has consumed " + list(late) + ": " + effect,
			"start the workers; " + forget})
}
