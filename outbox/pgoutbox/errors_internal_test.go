package pgoutbox

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

func TestTarget_Grants(t *testing.T) {
	const (
		usage  = `GRANT USAGE ON SCHEMA "events" TO "writer"; `
		insert = `GRANT INSERT ON "events".idem_outbox TO "writer"`
	)
	for name, c := range map[string]struct {
		option, found, verb, want string
	}{
		"found":       {"", "events", "add", "run as their owner: " + usage + insert},
		"both":        {"events", "events", "add", "run as their owner: " + usage + insert},
		"only option": {"events", "", "add", "run as their owner: " + usage + insert},
		"unknown":     {"", "", "add", `run as their owner: GRANT INSERT ON idem_outbox TO "writer"`},
		"relay": {
			"", "events", "fetch", "run as their owner: " + usage +
				`GRANT SELECT, UPDATE, DELETE ON "events".idem_outbox TO "writer"; ` +
				`GRANT SELECT, UPDATE ON "events".idem_outbox_shards TO "writer"; ` +
				`GRANT SELECT, INSERT, UPDATE, DELETE ON "events".idem_outbox_relays TO "writer"; ` +
				`GRANT SELECT ON "events".idem_outbox_schema TO "writer"`,
		},
		"migrate": {"", "events", "migrate", "migrate as the owner of the tables"},
	} {
		cfg := &pgx.ConnConfig{Config: pgconn.Config{User: "writer"}}
		err := target{cfg: cfg, option: c.option, found: c.found}.
			explain(c.verb, &pgconn.PgError{Code: codeNoRight})
		var setup *dedup.SetupError
		require.ErrorAs(t, err, &setup, name)
		require.Equal(t, c.want, setup.Fix, name)
	}
}
