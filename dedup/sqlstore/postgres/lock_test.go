package postgres_test

import (
	"testing"

	"github.com/idem-go/idem/dedup/sqlstore/internal/locktest"
)

func TestClaimReadsUnderALock_P01(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			s := open(t, driver, newTables(t))
			locktest.Claim(t, locktest.Site{
				Store: s, DB: siteOf(s).db, Later: "clock_timestamp() + interval '1 hour'",
				Waiting: `SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND wait_event_type = 'Lock'`,
			})
		})
	}
}
