package idem

import (
	"fmt"

	"github.com/idem-go/idem/internal/safetext"
)

// ErrorText is what log lines, dead letters and stores say of an error, unless [Config].ErrorText says something else: at
// most 1 KiB that quotes no data. Words of the handler's own stay as they are: who puts data into an error of his own puts it
// there. What drivers, decoders and servers say is replaced by its kind, wherever it stands in the chain:
//
//   - Postgres: the SQLSTATE with its name, and the constraint, table or column; no message, detail or context;
//   - encoding/json, strconv, time, net/url and others that decode: what was wrong and where, not the input;
//   - Redis and the APIs of AWS: the kind of the error, not the command or its arguments;
//   - passwords and tokens in addresses (user:password@), settings (password=...) and headers (Bearer ...).
//
// What somebody has made text of before, as with %v instead of %w, is recognised in its most common forms only. The empty text
// for nil. Safe for concurrent use.
func ErrorText(err error) string { return cutText(safetext.Text(err), maxErrorText) }

// errorText is what is said of err outside of this process. A text is not worth the process: one that cannot be made is replaced.
func (p *Processor) errorText(err error) (text string) {
	if err == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%T, for which Config.ErrorText panicked", err)
		}
	}()
	return cutText(p.cfg.ErrorText(err), maxErrorText)
}

// DecodeError says that a value is not what the handler takes. Of an error of encoding/json, or of a type's own UnmarshalJSON,
// its text says what is wrong as far as that is known to quote nothing of the value, else only the error's type. The words
// of a decoder that was set with [Decode], and of an error with a mark such as [Unavailable], are kept like a handler's own.
type DecodeError struct {
	Into string // the Go type
	Err  error  // of the decoder, in its own words

	words bool // the decoder is the user's: its words are kept
}

// Error quotes nothing of the value, unless the user's own decoder does.
func (e *DecodeError) Error() string {
	text := safetext.Strict
	if e.words || ErrorMark(e.Err) != "" {
		text = safetext.Text
	}
	return "decode into " + e.Into + ": " + text(e.Err)
}

// Unwrap returns the error of the decoder.
func (e *DecodeError) Unwrap() error { return e.Err }
