package mysql_test

import (
	"testing"

	"github.com/idem-go/idem/dedup/sqlstore/internal/locktest"
)

func TestClaimReadsUnderALock_P01(t *testing.T)     { locked(t, locktest.Claim) }
func TestClaimOfAnEventThatBegins_P01(t *testing.T) { locked(t, locktest.NewClaim) }

func locked(t *testing.T, test func(*testing.T, locktest.Site)) {
	s := open(t, newTables(t))
	test(t, locktest.Site{
		Store: s, DB: siteOf(s).db, Later: "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR",
		Waiting: `SELECT count(*) FROM information_schema.innodb_trx
			JOIN information_schema.processlist ON id = trx_mysql_thread_id
			WHERE trx_state = 'LOCK WAIT' AND db = database()`,
	})
}
