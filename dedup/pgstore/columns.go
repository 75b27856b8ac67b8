package pgstore

import "github.com/jackc/pgx/v5/pgtype"

// column is an array argument of a statement. For a plain slice, pgx allocates a copy of each
// element; for a column it gets pointers to the elements.
type column[T any] []T

var (
	_ pgtype.ArrayGetter = column[pgtype.Text]{}
	_ pgtype.TextValuer  = column[pgtype.Text]{}
)

// Dimensions implements [pgtype.ArrayGetter].
func (c column[T]) Dimensions() []pgtype.ArrayDimension {
	if c == nil {
		return nil
	}
	return []pgtype.ArrayDimension{{Length: int32(len(c)), LowerBound: 1}}
}

// Index implements [pgtype.ArrayGetter].
func (c column[T]) Index(i int) any { return &c[i] }

// IndexType implements [pgtype.ArrayGetter].
func (c column[T]) IndexType() any { return new(T) }

// TextValue implements [pgtype.TextValuer], for sessions that do not prepare statements. There pgx
// does not know the type of the argument.
func (c column[T]) TextValue() (pgtype.Text, error) {
	text, err := pgtype.NewMap().Encode(0, pgtype.TextFormatCode, []T(c), nil)
	return pgtype.Text{String: string(text), Valid: text != nil}, err
}

// word is a text column of a result, empty for null. A text that equals the one of the row before
// shares its memory.
type word string

// ScanBytes implements [pgtype.BytesScanner].
func (w *word) ScanBytes(b []byte) error {
	if string(b) != string(*w) {
		*w = word(b)
	}
	return nil
}
