package mysql

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	my "github.com/go-sql-driver/mysql"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/stretchr/testify/require"
)

func TestClassify(t *testing.T) {
	for class, numbers := range map[sqlstore.Class][]uint16{
		sqlstore.Again:   {1213, 1020, 3101},
		sqlstore.Taken:   {1062},
		sqlstore.Locked:  {1205, 3572},
		sqlstore.Ended:   {1305},
		sqlstore.Setup:   {1146, 1054, 1044, 1045, 1049, 1142, 1143},
		sqlstore.Down:    {1021, 1037, 1038, 1040, 1041, 1053, 1203, 1290, 1836, 1927, 1114, 1206, 1226, 1047},
		sqlstore.Stopped: {1317, 3024, 1969},
		sqlstore.Refused: {1406, 1366, 1048, 1452, 1064},
	} {
		for _, n := range numbers {
			err := fmt.Errorf("wrapped: %w", &my.MySQLError{Number: n})
			require.Equal(t, class, classify(err), n)
			require.Equal(t, n == 1213 || n == 1020 || n == 1206, ends(err), n)
		}
	}
	require.Equal(t, sqlstore.Unknown, classify(driver.ErrBadConn))
	require.Equal(t, sqlstore.Unknown, classify(errors.New("no server")))
	require.False(t, ends(errors.New("no server")))
}

func TestJudge(t *testing.T) {
	warnings, err := judge(1, 0)
	require.NoError(t, err)
	require.Empty(t, warnings)
	warnings, err = judge(2, 0)
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	_, err = judge(1, 1)
	require.ErrorContains(t, err, "innodb_rollback_on_timeout=OFF")
}
