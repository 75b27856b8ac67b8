package orms

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	gormpostgres "gorm.io/driver/postgres"
	gormsqlite "gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// openGorm opens gorm once for a program.
func openGorm(t *testing.T, s site) *gorm.DB {
	t.Helper()
	dialector := gormsqlite.New(gormsqlite.Config{Conn: s.db})
	if s.postgres {
		dialector = gormpostgres.New(gormpostgres.Config{Conn: s.db})
	}
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	return db
}

// gormIn returns gorm in the transaction of a handler.
func gormIn(ctx context.Context, db *gorm.DB, tx *sql.Tx) *gorm.DB {
	s := db.Session(&gorm.Session{Context: ctx, NewDB: true, SkipDefaultTransaction: true})
	s.Statement.ConnPool = tx
	return s
}

func withGorm(t *testing.T, s site) book {
	db := openGorm(t, s)
	return func(ctx context.Context, tx *sql.Tx, sales []Sale) (sum int64, err error) {
		in := gormIn(ctx, db, tx)
		if err := in.Create(&sales).Error; err != nil {
			return 0, err
		}
		for i := range sales { // Save is an update of the row: the ID came back
			if err := in.Model(&sales[i]).Update("pieces", sales[i].Pieces*2).Error; err != nil {
				return 0, err
			}
		}
		err = in.Model(&Sale{}).Select("coalesce(sum(pieces), 0)").Where("event = ?", sales[0].Event).Scan(&sum).Error
		return sum, err
	}
}

// gorm's own Transaction within the handler's is a savepoint.
func TestGormNestedTransaction(t *testing.T) {
	for name, s := range sites(t) {
		t.Run(name, func(t *testing.T) {
			db := openGorm(t, s)
			p := newProcessor(t, s, func(ctx context.Context, tx *sql.Tx, sales []Sale) error {
				in := gormIn(ctx, db, tx)
				err := in.Transaction(func(in *gorm.DB) error {
					require.NoError(t, in.Create(&Sale{Event: "inner", Pieces: 1}).Error)
					return errTransient
				})
				require.ErrorIs(t, err, errTransient)
				return in.Create(&sales).Error
			})
			p.deliver(t, single, "a")
			require.Equal(t, map[string]int{"a": 1}, s.rows(t))
		})
	}
}
