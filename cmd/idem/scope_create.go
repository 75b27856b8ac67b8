package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/dedup"
)

func newScopeCreateCmd(a *app) *cobra.Command {
	var topics []string
	cmd := &cobra.Command{
		Use: "create", Short: "Record a new scope for topics that other scopes know", Args: none,
		Long: "Writes the record of the scope, as a consumer with Config.NewScope does. The\n" +
			"group may then start without committed offsets. It handles all records of the\n" +
			"topics, also those that other scopes have handled: use create for another\n" +
			"consumer, and Config.Scope for a renamed group.",
		Example: "  idem scope create --group audit --topic orders --topic payments",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.createScope(cmd.Context(), topics)
		},
	}
	cmd.Flags().StringSliceVarP(&topics, "topic", "t", nil, "topic of the consumer; several")
	return cmd
}

func (a *app) createScope(ctx context.Context, topics []string) error {
	group, err := a.theGroup()
	if err != nil {
		return err
	}
	scope, err := a.theScope()
	switch {
	case err != nil:
		return err
	case len(topics) == 0:
		return usage("no topics: give --topic")
	}
	view := scopeResult{
		dryRunView: dryRunView{a.dryRun}, Scope: scope, Group: group, Topics: topics,
	}
	fields := map[string]any{"scope": scope, "group": group, "topics": topics}
	err = a.audited("scope create", fields, func() error {
		if err := (dedup.Key{Scope: scope, Type: "-", ID: "-"}).Validate(); err != nil {
			return usage("--scope: %w", err)
		}
		stores, err := a.registrars(ctx)
		if err != nil {
			return err
		}
		view.Stores = namesOf(stores)
		fields["stores"] = view.Stores
		if err := a.confirm(
			"Scope %q of group %q is new on %s: a group without committed offsets handles all "+
				"records "+
				"there, also those that other scopes have handled.",
			scope, group, strings.Join(topics, ", "),
		); err != nil {
			return err
		}
		return register(ctx, stores, dedup.Registration{
			Scope: scope, Group: group, Topics: topics, NoOffsets: true, NewScope: true,
		})
	})
	if unlessDryRun(err) != nil {
		return err
	}
	return a.show(view, nil, [][]string{
		{"scope", scope}, {"group", group}, {"topics", strings.Join(topics, ", ")},
		{"created in", strings.Join(view.Stores, ", ")},
	})
}
