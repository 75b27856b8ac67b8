package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/dedup"
)

// acceptFlags are those of accept. The types and the descriptors are pairs.
type acceptFlags struct {
	newIdentity        bool
	types, descriptors []string
}

func newScopeAcceptCmd(a *app) *cobra.Command {
	var f acceptFlags
	cmd := &cobra.Command{
		Use: "accept --new-identity", Args: none,
		Short: "Record that events are identified in another way",
		Long: "Writes the new descriptors of event types, as a consumer with\n" +
			"Config.AcceptNewIdentity does. The error of the consumer that does not start has\n" +
			"the whole command.\n" +
			"\n" +
			"Events of the backlog that were handled under their old identity run again under\n" +
			"the new one. Stop the group at zero lag, and without delayed retries, first.\n" +
			"Dead letters may stay: a replay settles the old identity, and the event runs\n" +
			"once under the new one.",
		Example: "  idem scope accept --new-identity --scope billing --type paid " +
			"--descriptor 'type=standard-type/1 id=json(\"payment_id\")'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.acceptIdentity(cmd.Context(), &f)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.newIdentity, "new-identity", false, "accept new places of ID, type and "+
		"tenant; required")
	flags.StringArrayVar(&f.types, "type", nil, "event type; several, each with a descriptor")
	flags.StringArrayVar(
		&f.descriptors, "descriptor", nil, "new descriptor of the type, from the error of the "+
			"consumer",
	)
	return cmd
}

// pairs returns the descriptors by type.
func (f *acceptFlags) pairs() (map[string]string, error) {
	all := make(map[string]string)
	switch {
	case !f.newIdentity:
		return nil, usage("accept what? give --new-identity")
	case len(f.types) == 0 || len(f.types) != len(f.descriptors):
		return nil, usage("give --type and --descriptor, as in the error of the consumer: %d "+
			"types, %d descriptors",
			len(f.types), len(f.descriptors))
	}
	for i, typ := range f.types {
		if _, twice := all[typ]; twice {
			return nil, usage("--type %q is given twice", typ)
		}
		if f.descriptors[i] == "" {
			return nil, usage("--descriptor of %q is empty", typ)
		}
		all[typ] = f.descriptors[i]
	}
	return all, nil
}

func (a *app) acceptIdentity(ctx context.Context, f *acceptFlags) error {
	now, err := f.pairs()
	if err != nil {
		return err
	}
	scope, err := a.theScope()
	if err != nil {
		return err
	}
	types := slices.Sorted(maps.Keys(now))
	view := scopeResult{dryRunView: dryRunView{a.dryRun}, Scope: scope, Types: types}
	fields := map[string]any{"scope": scope, "descriptors": now}
	err = a.audited("scope accept", fields, func() error {
		stores, err := a.registrars(ctx)
		if err != nil {
			return err
		}
		if stores, err = a.changed(ctx, stores, scope, now, fields); err != nil {
			return err
		}
		view.Stores = namesOf(stores)
		fields["stores"] = view.Stores
		if len(stores) == 0 {
			a.note("scope %s: the record has these descriptors already", scope)
			return nil
		}
		if err := a.confirm("%s\nEvents of the backlog that were handled under the old identity "+
			"run again.",
			descriptorLines(scope, types, now, fields)); err != nil {
			return err
		}
		return register(ctx, stores, dedup.Registration{
			Scope: scope, Descriptors: now, AcceptNewIdentity: true,
		})
	})
	if unlessDryRun(err) != nil {
		return err
	}
	return a.show(view, nil, [][]string{
		{"scope", scope}, {"types", strings.Join(types, ", ")},
		{"accepted in", strings.Join(view.Stores, ", ")},
	})
}

// changed returns the stores with other records, of those that know the scope and the types. It is
// an error if no store knows them: a consumer needs no permission for a new type, so the flags have
// a mistake.
func (a *app) changed(
	ctx context.Context, stores []*openedStore, scope string, now map[string]string,
	fields map[string]any,
) (differ []*openedStore, err error) {
	before := make(map[string]string)
	fields["before"] = before
	knows := 0
	var missing error
	for _, l := range stores {
		known, err := a.descriptorsOf(ctx, l, scope)
		if err != nil {
			return nil, err
		}
		if typ, ok := unknownType(now, known); ok {
			missing = found("%s: scope %q has no record of type %q; it knows %q",
				l.name, scope, typ, slices.Sorted(maps.Keys(known)))
			continue
		}
		knows++
		different := false
		for typ, descriptor := range now {
			if known[typ] != descriptor {
				different, before[typ] = true, known[typ]
			}
		}
		if different {
			differ = append(differ, l)
		}
	}
	if knows == 0 {
		return nil, missing
	}
	return differ, nil
}

// unknownType returns a type without a record.
func unknownType(now, known map[string]string) (typ string, ok bool) {
	for _, typ := range slices.Sorted(maps.Keys(now)) {
		if _, ok := known[typ]; !ok {
			return typ, true
		}
	}
	return "", false
}

// descriptorLines compares the descriptors, for a question.
func descriptorLines(
	scope string, types []string, now map[string]string, fields map[string]any,
) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Scope %q:", scope)
	before, _ := fields["before"].(map[string]string)
	for _, typ := range types {
		old, changed := before[typ]
		switch {
		case !changed:
		case old == "": // a store that does not show it
			fmt.Fprintf(&b, "\n  type %q: now [%s]", typ, now[typ])
		default:
			fmt.Fprintf(&b, "\n  type %q: on record [%s], now [%s]", typ, old, now[typ])
		}
	}
	return b.String()
}
