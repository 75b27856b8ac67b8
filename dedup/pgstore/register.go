package pgstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

var _ dedup.Registrar = (*Store)(nil)

// registerLimit bounds a registration, and the wait for another registration of the same scope.
const registerLimit = 10 * time.Second

// Register implements [dedup.Registrar] in tables idem_scopes, idem_scope_topics and
// idem_descriptors, in one transaction. Registrations of one scope wait for each other. If a
// consumer no longer names a type, the type's descriptor stays on record. So the type cannot
// come back with another descriptor unnoticed.
func (s *Store) Register(ctx context.Context, r dedup.Registration) error {
	return s.db.chore(ctx, "register", registerLimit,
		func(ctx context.Context, tx pgx.Tx, q *statements) error {
			if _, err := tx.Exec(ctx, q.aging.registerScope, r.Scope); err != nil {
				return err
			}
			types := slices.Sorted(maps.Keys(r.Descriptors))
			if !r.AcceptNewIdentity {
				if err := checkDescriptors(ctx, tx, q, r, types); err != nil {
					return err
				}
			}
			if r.NoOffsets && !r.NewScope {
				if err := checkScopes(ctx, tx, q, r); err != nil {
					return err
				}
			}
			descriptors := make([]string, len(types))
			for i, typ := range types {
				descriptors[i] = r.Descriptors[typ]
			}
			_, err := tx.Exec(ctx, q.aging.registerWrite, r.Scope, types, descriptors)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, q.aging.registerTopics, r.Scope, r.Group, r.Topics)
			return err
		})
}

// checkDescriptors compares descriptors with those on record (rule 7).
func checkDescriptors(ctx context.Context, tx pgx.Tx, q *statements, r dedup.Registration,
	types []string) error {
	rows, err := tx.Query(ctx, q.aging.registerDescriptors, r.Scope, types)
	if err != nil {
		return err
	}
	var typ, descriptor string
	var changed, changedTypes []string
	_, err = pgx.ForEachRow(rows, []any{&typ, &descriptor}, func() error {
		if now := r.Descriptors[typ]; now != descriptor {
			changedTypes = append(changedTypes, typ)
			changed = append(changed, fmt.Sprintf("type %q: on record [%s], now [%s]", typ,
				descriptor, now))
		}
		return nil
	})
	if err != nil || len(changed) == 0 {
		return err
	}
	slices.Sort(changedTypes)
	return &dedup.IdentityChangedError{Types: changedTypes, Err: &registerError{
		dedup.ErrIdentityChanged, fmt.Sprintf("scope %q: %s", r.Scope, strings.Join(changed, "; ")),
	}}
}

// checkScopes looks for topics with events that are recorded under another scope (rule 14).
func checkScopes(ctx context.Context, tx pgx.Tx, q *statements, r dedup.Registration) error {
	rows, err := tx.Query(ctx, q.aging.registerOthers, r.Scope, r.Topics)
	if err != nil {
		return err
	}
	var topic string
	var scopes, known []string
	_, err = pgx.ForEachRow(rows, []any{&topic, &scopes}, func() error {
		known = append(known, fmt.Sprintf("topic %q is known under %q", topic, scopes))
		return nil
	})
	if err != nil || len(known) == 0 {
		return err
	}
	return &registerError{dedup.ErrOtherScope, fmt.Sprintf("scope %q, group %q: %s", r.Scope,
		r.Group, strings.Join(known, "; "))}
}
