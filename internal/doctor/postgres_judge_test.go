package doctor

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Facts that a test cannot plant in a server: sound ones, with one changed.
func TestPostgresFacts(t *testing.T) {
	sound := func() *pgFacts {
		f := &pgFacts{role: "w", database: "d", direct: true, readsStats: true, roleLimit: -1, databaseLimit: -1, settings: map[string]pgSetting{}}
		for name, value := range map[string]string{
			"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "synchronous_standby_names": "", "default_transaction_read_only": "off",
			"client_connection_check_interval": "2000", "tcp_keepalives_idle": "10", "max_connections": "100", "autovacuum": "on", "track_counts": "on",
		} {
			f.settings[name] = pgSetting{value, "default"}
		}
		return f
	}
	hide := func(f *pgFacts) { f.hidden, f.schema = true, "events" }
	d := newExamination(Input{})
	for _, c := range []struct {
		id   string
		want Verdict
		says string
		do   func(f *pgFacts)
	}{
		{"postgres.standby", Bad, "target_session_attrs", func(f *pgFacts) { f.standby = true }},
		{"postgres.fsync", Bad, "ALTER SYSTEM", func(f *pgFacts) { f.settings["fsync"] = pgSetting{"off", "configuration file"} }},
		{"postgres.full_page_writes", Bad, "torn", func(f *pgFacts) { f.settings["full_page_writes"] = pgSetting{"off", "configuration file"} }},
		{"postgres.replication", Warn, "none synchronous", func(f *pgFacts) { f.replicas = 2 }},
		{"postgres.replication", OK, "", func(f *pgFacts) { f.replicas, f.synchronous = 2, 1 }},
		{"postgres.replication", Unknown, `GRANT pg_read_all_stats TO "w"`, func(f *pgFacts) { f.readsStats, f.replicas = false, 2 }},
		{"postgres.replication", OK, "", func(f *pgFacts) { f.readsStats = false }},
		{"postgres.commit", Warn, "remote_write", func(f *pgFacts) {
			f.settings["synchronous_standby_names"] = pgSetting{"*", "configuration file"}
			f.settings["synchronous_commit"] = pgSetting{"remote_write", "user"}
		}},
		{"postgres.idle_timeout", Bad, "transaction_timeout", func(f *pgFacts) { f.settings["transaction_timeout"] = pgSetting{"10000", "database"} }},
		{"postgres.connections", Warn, "others use 98", func(f *pgFacts) { f.others = 98 }},
		{"postgres.connections", Bad, "the database may have 2", func(f *pgFacts) { f.databaseLimit = 2 }},
		{"postgres.read_only", Warn, "reader", func(f *pgFacts) { f.elsewhere = []pgElsewhere{{"reader", "default_transaction_read_only", "on"}} }},
		{"postgres.unlogged", Unknown, `GRANT USAGE ON SCHEMA "events" TO "w"`, hide},
		{"postgres.autovacuum", Unknown, `GRANT USAGE ON SCHEMA "events" TO "w"`, hide},
		{"postgres.autovacuum", Warn, "track_counts is off", func(f *pgFacts) {
			hide(f)
			f.settings["track_counts"] = pgSetting{"off", "configuration file"}
		}},
		{"postgres.commit", Unknown, "synchronous_commit is on; of other roles not known", hide},
		{"postgres.commit", Bad, "the last commits", func(f *pgFacts) {
			hide(f)
			f.settings["synchronous_commit"] = pgSetting{"off", "user"}
		}},
		{"postgres.read_only", Unknown, `GRANT USAGE ON SCHEMA "events" TO "w"`, hide},
		{"postgres.read_only", Bad, "no event can be recorded", func(f *pgFacts) {
			hide(f)
			f.settings["default_transaction_read_only"] = pgSetting{"on", "user"}
		}},
		{"postgres.unlogged", Bad, `ALTER TABLE "processed_events" SET LOGGED`, func(f *pgFacts) {
			f.tables = []pgTable{{name: "processed_events", unlogged: true, autovacuum: true}}
		}},
		{"postgres.unlogged", Bad, `ALTER TABLE "events"."processed_events" SET LOGGED`, func(f *pgFacts) {
			f.schema, f.tables = "events", []pgTable{{name: "processed_events", unlogged: true, autovacuum: true}}
		}},
		{"postgres.autovacuum", Warn, `ALTER TABLE "events"."processed_events" RESET`, func(f *pgFacts) {
			f.schema, f.tables = "events", []pgTable{{name: "processed_events"}}
		}},
		{"postgres.fsync", OK, "", hide},
		{"postgres.session", OK, "", func(f *pgFacts) { f.local, f.settings["tcp_keepalives_idle"] = true, pgSetting{"0", "default"} }},
	} {
		var before, after Findings
		d.checkPostgresFacts(&before, "on", sound(), 4)
		require.Zero(t, before.Count(Bad, Warn, Unknown, Skipped), "%+v", before)
		f := sound()
		c.do(f)
		d.checkPostgresFacts(&after, "on", f, 4)
		w := worst(after, c.id)
		require.Equal(t, c.want, w.Verdict, "%s: %+v", c.id, w)
		require.Contains(t, w.Detail+w.Remedy, c.says)
	}
	// pgstore.Durable overrides the settings of all roles.
	durable := newExamination(Input{})
	durable.opt.Durable = true
	for _, do := range []func(*pgFacts){hide, func(f *pgFacts) {
		f.elsewhere = []pgElsewhere{{"w2", "synchronous_commit", "off"}}
	}} {
		f := sound()
		do(f)
		var found Findings
		durable.checkPostgresFacts(&found, "on", f, 4)
		require.Equal(t, OK, worst(found, "postgres.commit").Verdict, "%+v", found)
	}
}

// Results of the store's own check that no other check reports are not lost.
func TestStoreCheckBeyondOurs(t *testing.T) {
	d := newExamination(Input{})
	f := &pgFacts{role: "w", tables: []pgTable{{name: "processed_events"}}}
	for name, c := range map[string]struct {
		changed  map[string]string // settings of the server
		durable  bool
		other    bool // another role has synchronous_commit off
		reported int  // of the store's warnings
	}{
		"sound":                       {},
		"fsync":                       {changed: map[string]string{"fsync": "off"}, reported: 1},
		"full_page_writes":            {changed: map[string]string{"full_page_writes": "off"}, reported: 1},
		"both, of one warning":        {changed: map[string]string{"fsync": "off", "full_page_writes": "off"}, reported: 1},
		"commit":                      {changed: map[string]string{"synchronous_commit": "off"}, reported: 1},
		"commit, and Durable":         {changed: map[string]string{"synchronous_commit": "off"}, durable: true},
		"commit of another role":      {other: true},
		"remote_write, with standbys": {changed: map[string]string{"synchronous_commit": "remote_write", "synchronous_standby_names": "*"}},
		"both settings of a session": {
			changed: map[string]string{"client_connection_check_interval": "0", "tcp_keepalives_idle": "7200"}, reported: 2,
		},
	} {
		d.opt.Durable, f.elsewhere, f.settings = c.durable, nil, map[string]pgSetting{}
		for name, value := range map[string]string{
			"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "client_connection_check_interval": "2000", "tcp_keepalives_idle": "10",
		} {
			f.settings[name] = pgSetting{value, "default"}
		}
		for name, value := range c.changed {
			f.settings[name] = pgSetting{value, "configuration file"}
		}
		if c.other {
			f.elsewhere = []pgElsewhere{{"w2", "synchronous_commit", "off"}}
		}
		var own Findings
		d.checkPostgresFacts(&own, "on", f, 4)
		for n, want := range map[int]Verdict{c.reported: OK, c.reported + 1: Warn} {
			var r Findings
			d.checkTables(&r, "on", own, f, slices.Repeat([]string{"something"}, n), nil)
			require.Equal(t, want, worst(r, "postgres.store").Verdict, "%s: %d warnings", name, n)
		}
	}
	var r Findings
	d.checkTables(&r, "on", nil, f, nil, os.ErrInvalid)
	require.Equal(t, Bad, worst(r, "postgres.store").Verdict)
	require.True(t, strings.HasPrefix(worst(r, "postgres.store").Detail, "invalid"))
	r, f.tables, f.hidden = nil, nil, true
	d.checkTables(&r, "on", nil, f, nil, os.ErrInvalid)
	require.True(t, strings.HasPrefix(worst(r, "postgres.store").Detail, "invalid"), "hidden tables are not missing: %+v", r)
}

// A number has the same form in all parts of a finding: a person searches for it and copies it.
func TestNumbersHaveNoGroups(t *testing.T) {
	f := &pgFacts{settings: map[string]pgSetting{}, roleLimit: 12_000, databaseLimit: -1}
	var r Findings
	f.checkConnections(&r, "store", 10_000, 20_000)
	detail := worst(r, "postgres.connections").Detail
	require.Contains(t, detail, "20000 workers with 10000 connections each: 200000000")
}
