package pgstore

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// closedRows are the rows of a closed transaction, or of a query that failed. pgx returns rows
// together with an error, because some callers look at the rows only.
type closedRows struct{ err error }

func (closedRows) Close()       {}
func (r closedRows) Err() error { return r.err }

func (closedRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (closedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }

func (closedRows) Next() bool          { return false }
func (r closedRows) Scan(...any) error { return r.err }

func (r closedRows) Values() ([]any, error) { return nil, r.err }
func (closedRows) RawValues() [][]byte      { return nil }

func (closedRows) Conn() *pgx.Conn      { return nil }
func (closedRows) TypeMap() *pgtype.Map { return pgtype.NewMap() }
