package mysql_test

import (
	"database/sql"
	"testing"

	"github.com/idem-go/idem/outbox/outboxtest"
)

// The guarantees do not depend on the isolation level of the service's transactions.
func TestConformance(t *testing.T) {
	for name, level := range map[string]sql.IsolationLevel{
		"repeatable read": sql.LevelDefault, "read committed": sql.LevelReadCommitted,
	} {
		t.Run(name, func(t *testing.T) {
			outboxtest.Run(t, func(t testing.TB) outboxtest.Site[*sql.Tx] { return newSite(t, level) })
		})
	}
}

// Settings of the connection string have no influence.
func TestRoundTripWithSettings(t *testing.T) {
	for name, parameters := range map[string][]string{
		"times": {"parseTime=true", "loc=Local"}, "interpolated": {"interpolateParams=true"},
		"found rows": {"clientFoundRows=true"}, "time zone": {"time_zone=%27%2B05%3A00%27"},
	} {
		t.Run(name, func(t *testing.T) {
			outboxtest.RoundTrip(t, newSite(t, sql.LevelDefault, parameters...))
		})
	}
}
