package ops

import (
	"context"
	"fmt"
	"net/http"
)

// Handler is the page. Make it with [NewHandler]. Safe for concurrent use.
type Handler struct {
	cfg   Config
	guard *http.CrossOriginProtection
	pages map[string]methods
	src   sources
	plans *plans

	background
	strangers, refusals refusals // strangers: without a name, or from other sites
	cells               cells
	watch               deadLetterWatch
}

// Close ends the work behind the page and waits for it, until ctx ends. A replay finishes its
// current dead letter. Own connections to Kafka are closed. Later requests show errors in their
// sections.
func (h *Handler) Close(ctx context.Context) error {
	h.stop()
	done := make(chan struct{})
	go func() {
		h.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("ops: close: %w", context.Cause(ctx))
	}
	if h.src.close == nil {
		return nil
	}
	return h.src.close()
}

// methods has the handlers of one path, by method.
type methods map[string]func(*visit) error

func (p methods) allow() string {
	if _, ok := p[http.MethodGet]; !ok {
		return http.MethodPost
	}
	if _, ok := p[http.MethodPost]; ok {
		return "GET, HEAD, POST"
	}
	return "GET, HEAD"
}
