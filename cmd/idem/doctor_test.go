package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/doctor"
)

// examined runs the command and returns the findings. The exit code must fit.
func examined(t *testing.T, args ...string) findings {
	t.Helper()
	var out, errs bytes.Buffer
	code := runCommand(t.Context(), append([]string{"doctor", "-o", "json"}, withoutPasswords(t, args)...), strings.NewReader(""), &out, &errs)
	require.Contains(t, []int{exitOK, exitFound}, code, "%s", errs.String())
	var answer struct {
		Verdict doctor.Verdict
		Checks  findings
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &answer), "%s", out.String())
	want := exitOK
	if answer.Checks.count(doctor.Bad) > 0 {
		want = exitFound
		require.Equal(t, doctor.Bad, answer.Verdict)
	}
	require.Equal(t, want, code)
	for _, f := range answer.Checks {
		require.NotEmpty(t, f.Title, "%s has no title", f.ID)
		require.NotEmpty(t, f.Detail, f.ID)
	}
	return answer.Checks
}

// findings are those of a run of the command.
type findings []doctor.Finding

func (r findings) count(verdicts ...doctor.Verdict) int { return doctor.Findings(r).Count(verdicts...) }

// worst is the worst finding of a check.
func (r findings) worst(id string) (w doctor.Finding) {
	order := []doctor.Verdict{"", doctor.Skipped, doctor.OK, doctor.Unknown, doctor.Warn, doctor.Bad}
	for _, f := range r {
		if f.ID == id && slices.Index(order, f.Verdict) > slices.Index(order, w.Verdict) {
			w = f
		}
	}
	return w
}

// bads are the checks that are bad, for a message.
func (r findings) bads() (all []string) {
	for _, f := range r {
		if f.Verdict == doctor.Bad {
			all = append(all, f.ID+": "+f.Detail)
		}
	}
	return all
}

// plant is a misconfiguration that one check must find. Beforehand that check is ok, and afterwards
// no other one is worse than before but those named.
type plant struct {
	name  string
	id    string
	want  doctor.Verdict
	says  string   // part of the finding, or of its remedy
	args  []string // flags that make it
	also  []string // checks that find it too
	fresh bool     // no check is ok beforehand
}

// found looks before and after do.
func (p plant) found(t *testing.T, base []string, do func()) {
	t.Helper()
	before := examined(t, base...)
	require.Empty(t, before.bads(), "a clean set-up")
	if p.fresh {
		require.Contains(t, []doctor.Verdict{doctor.Skipped, ""}, before.worst(p.id).Verdict)
	} else {
		require.Equal(t, doctor.OK, before.worst(p.id).Verdict, "%s beforehand: %+v", p.id, before.worst(p.id))
	}
	if do != nil {
		do()
	}
	var after findings
	seen := func() bool { // a broker tells of a change a moment later
		after = examined(t, append(slices.Clone(base), p.args...)...)
		return after.worst(p.id).Verdict == p.want
	}
	if !seen() {
		require.Eventually(t, seen, 10*time.Second, 200*time.Millisecond, "%s: %+v", p.id, after.worst(p.id))
	}
	f := after.worst(p.id)
	require.Contains(t, f.Detail+" "+f.Remedy, p.says)
	for _, g := range after {
		if g.Verdict == doctor.Bad && g.ID != p.id && !slices.Contains(p.also, g.ID) {
			t.Errorf("%s finds something too: %s", g.ID, g.Detail)
		}
	}
}

// The settings of the flags must fit (rule 8, K-07, R-04, P-14, rule 31, G-07, T-08). The check
// uses no network.
func TestDoctor_Offline(t *testing.T) {
	base := []string{"--offline", "-G", "billing", "--store", "postgres://u:p@127.0.0.1:1/x?pool_max_conns=8", "--topics", "orders"}
	for _, p := range []plant{
		{name: "shorter than its retries", id: "settings.retention", want: doctor.Bad, says: "still in flight", args: []string{"--retention", "1m"}},
		{name: "longer than a rebalance", id: "settings.deadline", want: doctor.Bad, says: "removed from the group", args: []string{"--timeout", "2m"}},
		{name: "longer than grace", id: "settings.deadline", want: doctor.Warn, says: "uncertain", args: []string{"--timeout", "45s"}},
		{name: "grace", id: "settings.consumer", want: doctor.Bad, says: "Grace", args: []string{"--grace", "59s"}},
		{name: "too many lanes", id: "settings.consumer", want: doctor.Bad, says: "256", args: []string{"--lanes", "257"}},
		{name: "heartbeats", id: "settings.session", want: doctor.Warn, says: "heartbeats", args: []string{"--session-timeout", "6s"}},
		{name: "no heartbeat", id: "settings.consumer", want: doctor.Bad, says: "Heartbeat", args: []string{"--session-timeout", "2s"}},
		{name: "short lease", id: "settings.lease", want: doctor.Warn, says: "loses claims", args: []string{"--lease", "2s"}},
		{name: "no lease", id: "settings.lease", want: doctor.Bad, says: "refused", args: []string{"--lease", "500ms"}},
		{name: "long lease", id: "settings.lease", want: doctor.Warn, says: "waits", args: []string{"--lease", "1h"}},
		{name: "lanes without connections", id: "settings.pool", want: doctor.Warn, says: "pool_max_conns=21", args: []string{"--lanes", "16"}},
		{name: "one connection", id: "settings.pool", want: doctor.Bad, says: "waits for itself", args: []string{"--pool-size", "1"}},
		{name: "no name", id: "settings.dlq.name", want: doctor.Bad, says: "billing/eu", args: []string{"-G", "billing/eu"}},
		{name: "dead letters consumed", id: "settings.dlq.name", want: doctor.Bad, says: "circulate", args: []string{"--topics", "orders,orders.billing.dlq"}},
		{name: "in memory", id: "settings.store.volatile", want: doctor.Bad, says: "lost with its process", args: []string{"--store", "memstore://"}},
		{name: "no store we know", id: "settings.store.volatile", want: doctor.Bad, says: "not shown", args: []string{"--store", "mongodb://x"}},
		{name: "plain text", id: "settings.store.tls", want: doctor.Warn, says: "verify-full", args: []string{"--store", "postgres://u:p@db.example/x?sslmode=disable"}},
		{name: "fall back", id: "settings.store.tls", want: doctor.Warn, says: "fall back", args: []string{"--store", "postgres://u:p@db.example/x?sslmode=prefer"}},
		{name: "nobody's certificate", id: "settings.store.tls", want: doctor.Warn, says: "certificate", args: []string{"--store", "postgres://u:p@db.example/x?sslmode=require"}},
		{name: "password in the clear", id: "settings.store.tls", want: doctor.Bad, says: "rediss", args: []string{"--store", "redis://u:p@127.0.0.1:1,cache.example:6379/0"}},
		{name: "mysql in the clear", id: "settings.store.tls", want: doctor.Warn, says: "tls=true", args: []string{"--store", "mysql://u@db.example/x"}},
		{name: "redis in the clear", id: "settings.store.tls", want: doctor.Warn, says: "rediss", args: []string{"--store", "redis://cache.example"}},
	} {
		t.Run(p.name, func(t *testing.T) { p.found(t, base, nil) })
	}
	for _, url := range []string{"postgres://u:p@db.example/x?sslmode=verify-full", "rediss://u:p@cache.example:6379/0", "redis://u:p@[::1]:6379"} {
		require.Equal(t, doctor.OK, examined(t, append(base, "--store", url)...).worst("settings.store.tls").Verdict, url)
	}
	require.Equal(t, doctor.OK, examined(t, "--offline", "-G", "billing", "--retry-delays", "5s,1m", "--retention", "5m").worst("settings.retention").Verdict)
	require.Equal(t, doctor.Bad, examined(t, "--offline", "-G", "billing", "--retry-delays", "5s,10m", "--retention", "5m").worst("settings.retention").Verdict)
}

// The defaults of the library fit each other, and two runs say the same in the same order.
func TestDoctor_DefaultsAndOrder(t *testing.T) {
	first := examined(t, "--offline", "-G", "billing")
	require.Zero(t, first.count(doctor.Bad, doctor.Warn, doctor.Unknown), "%+v", first)
	require.Equal(t, first, examined(t, "--offline", "-G", "billing"))
}

// Mistakes in flags are exit code 2, and a password shows nowhere (G-04).
func TestDoctor_Usage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"--brokers", "127.0.0.1:1"}, {"--offline", "--retention", "-1s"}, {"--offline", "--lanes", "0"},
		{"--offline", "--dlq-topic", "letters"}, {"--offline", "--retry-delays", "0s"}, {"--offline", "x"}, {"--nonsense"},
	} {
		var out, errs bytes.Buffer
		code := runCommand(t.Context(), append([]string{"doctor"}, withoutPasswords(t, args)...), strings.NewReader(""), &out, &errs)
		require.Equal(t, exitUsage, code, "%v: %s%s", args, out.String(), errs.String())
		require.Empty(t, out.String(), "%v", args)
	}
	for _, url := range []string{
		"redis://u:hunter2@127.0.0.1:bad/0", "postgres://u:hunter2@127.0.0.1:bad/x", "redis://u:hunter2@127.0.0.1:1/0",
		"postgres://u:hunter2@127.0.0.1:1/x", "u:hunter2@127.0.0.1", "rediss+cluster://u:hunter2@127.0.0.1:1/?x=%zz",
		"redis://u:hunter2/x@127.0.0.1:1/0", "redis://u:47#hunter2@127.0.0.1:1", "postgres://u:4711/hunter2@127.0.0.1:1/x", "postgres://u:a@hunter2@127.0.0.1:1/x",
		"hunter2://127.0.0.1", "mem:hunter2@127.0.0.1", "u:hunter2://x@127.0.0.1",
	} {
		for _, form := range []string{"json", "table"} {
			var out, errs bytes.Buffer
			t.Setenv("IDEM_STORE", url)
			code := runCommand(t.Context(), []string{"doctor", "-o", form, "-G", "g"}, strings.NewReader(""), &out, &errs)
			require.Equal(t, exitFound, code, "%s: %s", url, errs.String())
			require.NotContains(t, out.String()+errs.String(), "hunter2", url)
		}
	}
}

// A table has each finding, and the remedy, below each other.
func TestDoctor_Table(t *testing.T) {
	var out, errs bytes.Buffer
	code := runCommand(t.Context(), []string{"doctor", "--offline", "-G", "g", "--retention", "1m"}, strings.NewReader(""), &out, &errs)
	require.Equal(t, exitFound, code)
	require.Regexp(t, `(?m)^BAD +settings\.retention +- +retention 1m0s is shorter .*\n +remedy: idem\.Retention of at least 1m35s$`, out.String())
	require.Regexp(t, `^1 bad, 0 warnings, 0 unknown, \d+ ok, 3 skipped\n$`, errs.String())
}
