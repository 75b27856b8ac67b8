package main

import (
	"cmp"
	"context"
	"strconv"
)

// tablesView is a line of migrate status.
type tablesView struct {
	Store    string   `json:"store,omitempty"`
	Outbox   string   `json:"outbox,omitempty"` // instead of a store
	Schema   string   `json:"schema,omitempty"`
	Layout   string   `json:"layout,omitempty"`
	Version  int      `json:"version"`
	State    string   `json:"state"` // ok, missing, unfit, unavailable
	Problem  string   `json:"problem,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

var tablesHeader = []string{"STORE", "SCHEMA", "LAYOUT", "VERSION", "STATE", "PROBLEM"}

func (v *tablesView) row() []string {
	name := cmp.Or(v.Store, v.Outbox)
	return []string{name, v.Schema, v.Layout, strconv.Itoa(v.Version), v.State, oneLine(v.Problem)}
}

// lines are the row and its warnings.
func (v *tablesView) lines() [][]string {
	rows := [][]string{v.row()}
	for _, w := range v.Warnings {
		rows = append(rows, []string{"", "", "", "", "warning", oneLine(w)})
	}
	return rows
}

func checkLayoutFlag(layout string) error {
	switch layout {
	case "", layoutReadable, layoutCompact:
		return nil
	}
	return usage("--layout is readable or compact, not %q", layout)
}

// openTables opens the stores, which must be in SQL databases, for a layout.
func (a *app) openTables(ctx context.Context, layout string) ([]*openedStore, error) {
	if err := checkLayoutFlag(layout); err != nil {
		return nil, err
	}
	stores, err := a.openStores(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range stores {
		switch {
		case !l.hasTables():
			return nil, usage("%s has no tables: this command is for stores in SQL databases, "+
				"such as Postgres", l.name)
		case l.pg == nil && layout != "":
			return nil, usage("--layout is for stores in Postgres, %s has one layout", l.name)
		case l.db != nil:
			l.state = mysqlTables(ctx, l.db)
		case layout != "": // the store refuses tables with another layout
			l.useLayout(layout)
		}
	}
	return stores, nil
}
