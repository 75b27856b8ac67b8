package postgres_test

import (
	"testing"

	"github.com/idem-go/idem/dedup/sqlstore/internal/locktest"
)

func TestClaimReadsUnderALock_P01(t *testing.T)     { eachLocked(t, locktest.Claim) }
func TestClaimOfAnEventThatBegins_P01(t *testing.T) { eachLocked(t, locktest.NewClaim) }

func eachLocked(t *testing.T, test func(*testing.T, locktest.Site)) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			s := open(t, driver, newTables(t))
			test(t, locktest.Site{
				Store: s, DB: siteOf(s).db, Later: "clock_timestamp() + interval '1 hour'",
				// Other tests use the database too, and other tables.
				Waiting: `SELECT count(*) FROM pg_locks l JOIN pg_locks u USING (pid)
					WHERE NOT l.granted AND u.relation = 'idempotency_keys'::regclass`,
			})
		})
	}
}
