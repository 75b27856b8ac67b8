package engine

import (
	"fmt"

	"github.com/idem-go/idem/internal/safetext"
)

// maxErrorText limits the text of an error outside of this process (T-04).
const maxErrorText = 1 << 10

// errorText returns the text of err for use outside this process. If Config.ErrorText panics, a
// substitute names the type of err.
func (p *Processor) errorText(err error) (text string) {
	if err == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%T, for which Config.ErrorText panicked", err)
		}
	}()
	return safetext.Cut(p.cfg.ErrorText(err), maxErrorText)
}
