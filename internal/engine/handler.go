package engine

import (
	"context"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// Table has the handlers of a router.
type Table struct {
	Handlers []*Handler
	// function for events of a type without a handler; may be nil
	NotFound      func(context.Context, *idemtype.Message) error
	NotFoundCalls int // calls of Router.NotFound
	Problems      []error
}

// Handler is one registered handler.
type Handler struct {
	Settings
	Type   string
	Data   string // name of T, for errors
	Site   string // file:line of the registration
	Batch  bool   // the handler takes many events
	Bind   func(dedup.Store) (TxStore, error)
	Decode func(context.Context, *idemtype.Message) (payload any, err error)
	// Decode calls a function of the user, which may ask other services
	ImpureDecode bool
	Decoded      bool // Decode, ID, type, tenant or fingerprint call an idemtype.Decoder
	Call         Invocation
}

// Invocation runs a handler on one decoded message. A batch handler runs on many.
type Invocation func(ctx context.Context, tx any, in []Input) error

// Input is a copy of one event of a call, so that an abandoned handler shares no state.
type Input struct {
	Key       dedup.Key
	Name      string // of the handler
	Fence     uint64
	ID        string
	Attempt   int
	Uncertain bool
	Message   *idemtype.Message
	Payload   any // result of Handler.Decode
}

// TxStore is a dedup.TxStore without the type parameter.
type TxStore interface {
	ClaimTx(
		ctx context.Context, limit time.Duration, reqs []dedup.Request, answers []dedup.Answer,
		fn func(tx any) ([]dedup.Completion, error),
	) error
	CanRunTx() bool // reports whether RunTx works; such a run has no claim
	RunTx(ctx context.Context, limit time.Duration, fn func(tx any) error) error
}
