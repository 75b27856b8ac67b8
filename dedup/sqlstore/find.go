package sqlstore

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
)

// kindsAtOnce is the number of kinds that Find looks through with one statement.
const kindsAtOnce = 500

// Find implements [dedup.Lister]. Find reads only the index of the key: a few pages for each
// tenant, scope and type in the store. Find reads 500 of these at once, without a transaction
// around all of them. So the context of the caller bounds the time of Find, and 30 seconds bound
// the time of each part.
func (s *Store) Find(ctx context.Context, scope, id string) (records []dedup.Record, err error) {
	if err := (dedup.Key{Scope: scope, ID: id}).Validate(); err != nil {
		return nil, s.wrong("find", err)
	}
	for _, t := range tables {
		var last *dedup.Key
		for more := true; more; {
			err := s.reading(ctx, "find", nil, func(ctx context.Context, w *work) error {
				page, err := w.kindsOf(ctx, t, last, id)
				if err != nil {
					return err
				}
				last, more = page.last, page.more
				found, err := w.records(ctx, t, page.keys(scope, id))
				records = append(records, found...)
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	slices.SortStableFunc(records, func(a, b dedup.Record) int { return a.Key.Compare(b.Key) })
	return records, nil
}

// records returns the records of keys in one table.
func (w *work) records(ctx context.Context, t *table, keys []dedup.Key) (all []dedup.Record,
	err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	found, err := w.read(ctx, t, keys, "")
	for _, r := range found {
		all = append(all, view(t, r, w.now))
	}
	return all, err
}

// kindsPage are neighbours in the order of the index. A kind is a tenant, a scope and a type: a key
// without its ID.
type kindsPage struct {
	with []dedup.Key // the kinds that have the ID
	last *dedup.Key
	more bool
}

// keys returns the keys with the ID in order. An empty scope means all scopes.
func (p *kindsPage) keys(scope, id string) (keys []dedup.Key) {
	for _, k := range p.with {
		if scope == "" || k.Scope == scope {
			k.ID = id
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, dedup.Key.Compare)
	return keys
}

// kindsOf returns the page of kinds after the last one. Nil comes before all kinds.
func (w *work) kindsOf(ctx context.Context, t *table, last *dedup.Key, id string) (p kindsPage,
	err error) {
	n := 0
	text, args := kindsQuery(w.d, t, last, id)
	err = each(ctx, w.q, text, args, func(rows *sql.Rows) error {
		var k dedup.Key
		var records int64
		err := rows.Scan(&k.Tenant, &k.Scope, &k.Type, &records)
		if records > 0 {
			p.with = append(p.with, k)
		}
		p.last = &k
		n++
		return err
	})
	p.more = n == kindsAtOnce
	return p, err
}

// kindsQuery returns the query of a page of kinds, with the number of records of the ID. The ID is
// the last column of the key. So the query walks the index of the key from one kind to the next,
// and reads one or two of its entries for each kind.
func kindsQuery(d *Dialect, t *table, last *dedup.Key, id string) (text string, args []any) {
	a := &arguments{d: d}
	page := ""
	switch {
	case d.Lateral:
		first := t.name
		if last != nil {
			first += " WHERE (" + kindColumns + ") > (" + a.add(last.Tenant) + ", " +
				a.add(last.Scope) + ", " + a.add(last.Type) + ")"
		}
		text = walk(a, firstKind(first), "CROSS JOIN LATERAL (SELECT "+kindColumns+" FROM "+
			t.name+" k WHERE (k.tenant, k.scope, k.event_type) > (i.tenant, i.scope, i.event_type)"+
			" ORDER BY "+kindColumns+" LIMIT 1) n")
	case d.RowLookup:
		first := firstKind(t.name)
		if last != nil {
			first = "SELECT " + a.add(last.Tenant) + " AS tenant, " + a.add(last.Scope) +
				" AS scope, " + a.add(last.Type) + " AS event_type, 0 AS place"
			page = " WHERE place > 0"
		}
		text = walk(a, first, "JOIN "+t.name+" n ON (n.tenant, n.scope, n.event_type, "+
			"n.event_id) = ("+nextRow(t)+")")
	default:
		text = "WITH kinds AS (SELECT DISTINCT " + kindColumns + " FROM " + t.name + d.ByKey +
			" WHERE " + rangesAfter(a, last) + " ORDER BY " + kindColumns + " LIMIT " +
			a.add(int64(kindsAtOnce)) + ")"
	}
	text += " SELECT " + kindColumns + ", (SELECT count(*) FROM " + t.name + " k" + d.ByKey +
		" WHERE k.tenant = i.tenant AND k.scope = i.scope AND k.event_type = i.event_type" +
		" AND k.event_id = " + a.add(id) + ") FROM kinds i" + page + " ORDER BY " +
		kindColumns
	return text, a.list
}

const kindColumns = "tenant, scope, event_type"

// walk returns the recursive table kinds. first is the query of its first row. The join next finds
// the kind n that follows the kind i. A first row at place 0 is the kind before the page.
func walk(a *arguments, first, next string) string {
	return "WITH RECURSIVE kinds AS (" + first + " UNION ALL SELECT n.tenant, n.scope, " +
		"n.event_type, i.place + 1 FROM kinds i " + next + " WHERE i.place < " +
		a.add(int64(kindsAtOnce)) + ")"
}

func firstKind(from string) string {
	return "SELECT * FROM (SELECT " + kindColumns + ", 1 AS place FROM " + from + " ORDER BY " +
		kindColumns + " LIMIT 1) f"
}

// nextRow returns the query of the key of the first row after the kind i. SQLite reads all rows of
// the kind i for one comparison of rows.
func nextRow(t *table) string {
	key := strings.Join(keyColumns, ", ")
	var parts []string
	for _, after := range []string{
		"tenant = i.tenant AND scope = i.scope AND event_type > i.event_type",
		"tenant = i.tenant AND scope > i.scope",
		"tenant > i.tenant",
	} {
		parts = append(parts, "SELECT * FROM (SELECT "+key+" FROM "+t.name+" WHERE "+after+
			" ORDER BY "+key+" LIMIT 1)")
	}
	return "SELECT " + key + " FROM (" + strings.Join(parts, " UNION ALL ") + ") ORDER BY " + key +
		" LIMIT 1"
}

// rangesAfter is the condition for the rows after a kind, as ranges of the index. MySQL and MariaDB
// read the whole index for a comparison of rows. They skip from one kind to the next for DISTINCT,
// if the query selects columns of the index alone.
func rangesAfter(a *arguments, last *dedup.Key) string {
	if last == nil {
		return "1 = 1"
	}
	inType := "tenant = " + a.add(last.Tenant) + " AND scope = " + a.add(last.Scope) +
		" AND event_type > " + a.add(last.Type)
	inScope := "tenant = " + a.add(last.Tenant) + " AND scope > " + a.add(last.Scope)
	return "(" + inType + " OR " + inScope + " OR tenant > " + a.add(last.Tenant) + ")"
}
