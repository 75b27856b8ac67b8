package engine

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/safetext"
)

// reporter writes the log and calls the observers.
type reporter struct {
	group     string
	shadow    bool
	lease     time.Duration
	log       *slog.Logger
	obs       observers
	text      func(error) string
	unhandled unhandled
}

func newReporter(cfg *Config) *reporter {
	return &reporter{
		group: cfg.Group, shadow: cfg.Shadow, lease: cfg.Lease, log: cfg.Logger, text: cfg.ErrorText,
	}
}

// maxErrorText limits the text of an error outside of this process (T-04).
const maxErrorText = 1 << 10

// errorText returns the text of err for use outside of this process. If Config.ErrorText panics, a
// substitute names the type of err.
func (r *reporter) errorText(err error) (text string) {
	if err == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%T, for which Config.ErrorText panicked", err)
		}
	}()
	return safetext.Cut(r.text(err), maxErrorText)
}

// messageAttrs returns the log attributes of a message. The key is left out without an ID.
func messageAttrs(m *idemtype.Message, k dedup.Key) []any {
	attrs := []any{"topic", m.Topic, "partition", m.Partition, "offset", m.Offset}
	if k.ID != "" {
		attrs = append(attrs, "key", k.String())
	}
	return attrs
}
