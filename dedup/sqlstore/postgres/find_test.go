package postgres_test

import (
	"testing"

	"github.com/idem-go/idem/dedup/sqlstore/internal/findtest"
	"github.com/idem-go/idem/dedup/sqlstore/postgres"
	"github.com/idem-go/idem/internal/sqlrecord"
)

func TestFindOfManyKinds(t *testing.T) {
	db, log := sqlrecord.Open(t, "pgx", newTables(t)+"&"+postgres.Parameters)
	findtest.Walk(t, postgres.New(db), log)
}
