package idem

import (
	"github.com/idem-go/idem/internal/safetext"
)

// ErrorText is the default of [Config].ErrorText: the text of an error for log lines, dead letters
// and stores. The text has at most 1 KiB and quotes no data. The text of nil is empty. Safe for
// concurrent use.
//
// The handler's own words are kept: an error that a handler creates must not contain data that does
// not belong in logs. Texts of drivers, decoders and servers are replaced by the kind of the error,
// at any place in the chain:
//
//   - Postgres: the SQLSTATE with its name, and the constraint, table or column. Message, detail
//     and context are left out.
//   - encoding/json, strconv, time, net/url and other decoders: the mistake and the place, without
//     the input.
//   - Redis and the APIs of AWS: the kind of the error, without command and arguments.
//   - Passwords and tokens in addresses (user:password@), settings (password=...) and headers
//     (Bearer ...) are removed.
//
// In an error that was made into text, as with %v instead of %w, only the most common forms are
// recognized.
func ErrorText(err error) string { return safetext.Cut(safetext.Text(err), 1<<10) }

// DecodeError means that the value of a message could not be decoded into the handler's type. The
// message becomes a dead letter of [ClassUndecodable].
//
// For errors of encoding/json or of a type's own UnmarshalJSON, the text has only parts that cannot
// quote the value. If no such part is known, the text is the error's type. Two kinds of errors are
// treated like the error of a handler, see [ErrorText]: those of a decoder that was set with
// [Decode], [PureDecode] or [DecodeWith], and those with a mark such as [Unavailable].
type DecodeError struct {
	Into string // name of the Go type
	Err  error  // as the decoder returned it

	own bool // the decoder was set by an option
}

// Error does not quote the value, unless a decoder of the user does ([Decode], [PureDecode],
// [DecodeWith]).
func (e *DecodeError) Error() string {
	text := safetext.Strict
	if e.own || ErrorMark(e.Err) != "" {
		text = safetext.Text
	}
	return "decode into " + e.Into + ": " + text(e.Err)
}

// Unwrap returns the error of the decoder.
func (e *DecodeError) Unwrap() error { return e.Err }
