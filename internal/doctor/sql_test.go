package doctor

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// checked is a store with a known result of its check.
type checked struct {
	warnings []string
	err      error
}

func (c checked) Check(context.Context) ([]string, error) { return c.warnings, c.err }

func TestExamine_SQL(t *testing.T) {
	for want, c := range map[Verdict]checked{
		OK: {}, Warn: {warnings: []string{"the journal mode is delete"}}, Bad: {err: errors.New("tables are missing")},
	} {
		store := Store{URL: "sqlite:shop.db", OpenSQL: func(context.Context) (Checker, string, error) { return c, "sqlite shop.db", nil }}
		r, err := Examine(t.Context(), Input{Group: "g", Stores: []Store{store}})
		require.NoError(t, err)
		require.Equal(t, want, worst(r, "sql.store").Verdict, "%+v", r)
		require.Equal(t, "sqlite shop.db", worst(r, "sql.store").On)
		require.Equal(t, OK, worst(r, "settings.store.volatile").Verdict)
	}
	store := Store{URL: "sqlite:shop.db", OpenSQL: func(context.Context) (Checker, string, error) { return nil, "", errors.New("no such file") }}
	r, err := Examine(t.Context(), Input{Group: "g", Stores: []Store{store}})
	require.NoError(t, err)
	require.Equal(t, Bad, worst(r, "sql.store").Verdict)
}

func TestExamine_MySQLAccess(t *testing.T) {
	for url, want := range map[string]Verdict{
		"mysql://u@127.0.0.1/shop": OK, "mariadb://u@h/shop?tls=true": OK, "mysql://u@h/shop": Warn,
		"mysql://u@h/shop?tls=preferred": Warn, "mysql://u@h/shop?tls=skip-verify": Warn, "mysql://u@h:port/shop": Bad,
		"sqlite:shop.db": Skipped,
	} {
		r, err := Examine(t.Context(), Input{Group: "g", Offline: true, Stores: []Store{{URL: url}}})
		require.NoError(t, err)
		require.Equal(t, want, worst(r, "settings.store.tls").Verdict, url)
	}
}
