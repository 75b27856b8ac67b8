package engine

import (
	"context"
	"sync"
	"sync/atomic"
)

// Processor is the engine behind Processor of package idem.
type Processor struct {
	*reporter
	cfg      Config
	routes   routes
	copies   copies
	batches  bool // a handler takes many events at once
	decodes  bool // a handler or an extractor calls a Decoder
	stores   []*storeAccess
	producer health
	readers  readers

	unanswered         unanswered
	abandoned          sync.WaitGroup
	abandonedNow       atomic.Int64
	closing            context.Context //nolint:containedctx // ends when Close begins
	close              context.CancelFunc
	crashGuard         crashGuard
	deferredPartitions deferredPartitions
	ordered            bool     // a handler is KeyOrdered
	keyOrdered         []string // event types of the handlers that were registered as KeyOrdered
	own                *ownProgress
	breakersClosed     atomic.Bool // the end of the open breakers was reported
}
