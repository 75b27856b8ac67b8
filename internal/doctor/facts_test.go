package doctor

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// worst is the worst finding of a check.
func worst(r Findings, id string) (w Finding) {
	order := []Verdict{"", Skipped, OK, Unknown, Warn, Bad}
	for _, f := range r {
		if f.ID == id && slices.Index(order, f.Verdict) > slices.Index(order, w.Verdict) {
			w = f
		}
	}
	return w
}

// bads are the checks that are bad, for a message.
func bads(r Findings) (all []string) {
	for _, f := range r {
		if f.Verdict == Bad {
			all = append(all, f.ID+": "+f.Detail)
		}
	}
	return all
}

// docs/doctor.md explains each check, and only checks.
func TestDocsNameEachCheck(t *testing.T) {
	text, err := os.ReadFile("../../docs/doctor.md")
	require.NoError(t, err)
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+\\.[a-z_.]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		require.False(t, documented[m[1]], "%s stands there twice", m[1])
		documented[m[1]] = true
		require.Contains(t, titles, m[1], "no such check")
	}
	for id := range titles {
		role := regexp.MustCompile(`^kafka\.retry\.`).ReplaceAllString(id, "kafka.dlq.") // explained together
		require.True(t, documented[role], "docs/doctor.md does not explain %s", id)
	}
}

// The defaults are those of the library.
func TestDefaults(t *testing.T) {
	require.Equal(t, time.Minute, Defaults().Rebalance)
	require.Equal(t, 20*time.Second, Defaults().Session)
	r, err := Examine(t.Context(), Input{Group: "billing", Offline: true})
	require.NoError(t, err)
	require.Equal(t, OK, r.Verdict(), "%+v", r)
}

// One replica is all that one broker can have; on three brokers it is a problem (K-36).
func TestReplication(t *testing.T) {
	for _, c := range []struct {
		brokers, replicas int
		isr               string
		want              Verdict
		isrWant           Verdict
	}{{1, 1, "1", OK, OK}, {3, 1, "1", Bad, OK}, {3, 3, "2", OK, OK}, {3, 3, "1", OK, Warn}, {3, 3, "3", OK, Warn}, {3, 2, "3", OK, Bad}} {
		k := &kafkaDoctor{examination: newExamination(Input{}), servers: []string{"b:1"}, brokers: c.brokers}
		var r Findings
		k.checkSafety(&r, "dlq", &topicFacts{name: "x", exists: true, replicas: c.replicas, config: settings{
			"min.insync.replicas": c.isr, "unclean.leader.election.enable": "false"}})
		require.Equal(t, c.want, worst(r, "kafka.dlq.replication").Verdict, "%+v", c)
		require.Equal(t, c.isrWant, worst(r, "kafka.dlq.min_isr").Verdict, "%+v", c)
	}
}

// A clock that differs by an hour is found, with the round trip as margin (P-10, R-18).
func TestClock(t *testing.T) {
	pool := storePool(t)
	for offset, want := range map[time.Duration]Verdict{0: OK, 20 * time.Second: Warn, -time.Hour: Bad, time.Hour: Bad} {
		r, err := Examine(t.Context(), Input{Group: "billing", Stores: []Store{{Pool: pool}}, Now: func() time.Time { return time.Now().Add(offset) }})
		require.NoError(t, err)
		require.Equal(t, want, worst(r, "postgres.clock").Verdict, "%s: %+v", offset, worst(r, "postgres.clock"))
	}
	_, _, err := compareClocks(time.Now, func() (time.Time, error) { return time.Time{}, fmt.Errorf("gone") })
	require.ErrorContains(t, err, "gone")
}

// Facts that a test cannot plant in a server: an old version, and empty answers.
func TestRedisFacts(t *testing.T) {
	for version, want := range map[string]Verdict{"7.0.15": OK, "8.2.1": OK, "6.2.14": Bad, "": Unknown} {
		f := &redisFacts{addr: "a:1", appendfsync: "always", info: settings{"redis_version": version, "aof_enabled": "1",
			"maxmemory_policy": "noeviction", "role": "master", "maxmemory": "1000", "used_memory": "850"}}
		var r Findings
		f.judge(&r)
		require.Equal(t, want, worst(r, "redis.version").Verdict, version)
		require.Equal(t, Warn, worst(r, "redis.memory").Verdict)
		require.Equal(t, OK, worst(r, "redis.persistence").Verdict)
	}
	var r Findings
	(&redisFacts{info: settings{}}).judge(&r)
	require.Empty(t, bads(r))
	require.Equal(t, 5, r.Count(Unknown), "%+v", r) // rights, version, eviction, persistence, role
}
