package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
)

var _ dedup.Registrar = (*Store)(nil)

// The tables of registrations.
var (
	scopesTable      = relation{"idem_scopes", []string{"scope", "updated_at"}, 1}
	topicsTable      = relation{"idem_scope_topics", []string{"topic", "scope", "consumer_group"}, 3}
	descriptorsTable = relation{"idem_descriptors", []string{"scope", "event_type", "descriptor",
		"updated_at"}, 2}
)

// Register implements [dedup.Registrar] in tables idem_scopes, idem_scope_topics and
// idem_descriptors, in one transaction. Registrations of one scope wait for each other. If a
// consumer no longer names a type, the type's descriptor stays on record. So the type cannot
// come back with another descriptor unnoticed.
func (s *Store) Register(ctx context.Context, r dedup.Registration) error {
	return s.ownTx(ctx, "register", nil, func(ctx context.Context, w *work) error {
		if err := w.readClock(ctx); err != nil {
			return err
		}
		row := []any{r.Scope, w.d.Time(w.now)} // locks the scope until the commit
		if err := scopesTable.replace(ctx, w.q, w.d, [][]any{row}); err != nil {
			return err
		}
		if err := w.registerDescriptors(ctx, &r); err != nil {
			return err
		}
		return w.registerTopics(ctx, &r)
	})
}

// registerDescriptors compares descriptors with those on record (rule 7), and stores them.
func (w *work) registerDescriptors(ctx context.Context, r *dedup.Registration) error {
	known := make(map[string]string)
	text := "SELECT event_type, descriptor FROM idem_descriptors WHERE scope = " + w.d.Param(1)
	err := each(ctx, w.q, text, []any{r.Scope}, func(rows *sql.Rows) error {
		var typ, descriptor string
		err := rows.Scan(&typ, &descriptor)
		known[typ] = descriptor
		return err
	})
	if err != nil {
		return err
	}
	var differ, differTypes []string
	var changed [][]any
	for _, typ := range slices.Sorted(maps.Keys(r.Descriptors)) {
		old, there := known[typ]
		now := r.Descriptors[typ]
		if there && old == now {
			continue
		}
		if there {
			differTypes = append(differTypes, typ)
			differ = append(differ, fmt.Sprintf("type %q: on record [%s], now [%s]", typ, old, now))
		}
		changed = append(changed, []any{r.Scope, typ, now, w.d.Time(w.now)})
	}
	if len(differ) > 0 && !r.AcceptNewIdentity {
		return refusal{&dedup.IdentityChangedError{Types: differTypes, Err: fmt.Errorf(
			"%w: scope %q: %s", dedup.ErrIdentityChanged, r.Scope, strings.Join(differ, "; "))}}
	}
	return descriptorsTable.replace(ctx, w.q, w.d, changed)
}

// registerTopics looks for topics with events that are recorded under another scope (rule 14), and
// records that the scope and the group consume these topics.
func (w *work) registerTopics(ctx context.Context, r *dedup.Registration) error {
	topics := distinct(r.Topics)
	scopes := make(map[string][]string) // by topic
	mine := make(map[string]bool)       // topics of this scope and group
	for some := range slices.Chunk(topics, rowsPerStatement) {
		a := &arguments{d: w.d}
		text := "SELECT topic, scope, consumer_group FROM idem_scope_topics WHERE topic IN " +
			in(a, some) + " ORDER BY topic, scope"
		err := each(ctx, w.q, text, a.list, func(rows *sql.Rows) error {
			var topic, scope, group string
			err := rows.Scan(&topic, &scope, &group)
			scopes[topic] = append(scopes[topic], scope)
			mine[topic] = mine[topic] || scope == r.Scope && group == r.Group
			return err
		})
		if err != nil {
			return err
		}
	}
	if r.NoOffsets && !r.NewScope {
		if err := otherScopes(r, topics, scopes); err != nil {
			return err
		}
	}
	var added [][]any
	for _, topic := range topics {
		if !mine[topic] {
			added = append(added, []any{topic, r.Scope, r.Group})
		}
	}
	return topicsTable.add(ctx, w.q, w.d, added)
}

// otherScopes returns an error if a topic is known under other scopes only.
func otherScopes(r *dedup.Registration, topics []string, scopes map[string][]string) error {
	var known []string
	for _, topic := range topics {
		if all := slices.Compact(scopes[topic]); len(all) > 0 && !slices.Contains(all, r.Scope) {
			known = append(known, fmt.Sprintf("topic %q is known under %q", topic, all))
		}
	}
	if len(known) == 0 {
		return nil
	}
	return refusal{fmt.Errorf("%w: scope %q, group %q: %s", dedup.ErrOtherScope, r.Scope, r.Group,
		strings.Join(known, "; "))}
}
