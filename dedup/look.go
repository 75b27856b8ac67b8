package dedup

import "context"

// Looker is an ability of a [Store]: to say what it knows without granting anything.
type Looker interface {
	// Look answers as Claim would, but writes nothing and claims nothing: where Claim would grant, the answer is zero. It
	// is one round trip, and of no use to decide that something may run: between Look and Claim others come. Keys ascend as
	// in Claim, and errors are those of Claim. A claim is Busy for its own holder too: Look has no token.
	Look(ctx context.Context, reqs []Request, answers []Answer) error
}

// TxLooker is an ability of a [TxStore]: as [Looker], for what ClaimTx remembers. A transaction that is under way is not seen.
type TxLooker interface {
	// LookTx answers as ClaimTx would, with a zero verdict where it would run its function.
	LookTx(ctx context.Context, reqs []Request, answers []Answer) error
}

// Savepointer is an ability of a transaction that [TxStore].ClaimTx lends to its function.
type Savepointer interface {
	// Savepoint marks where the transaction is now. undo takes back all that was done since, also after a statement has failed
	// and the server refuses all others; it may be called once, before the function returns.
	Savepoint(ctx context.Context) (undo func(context.Context) error, err error)
}

// ResultLimiter is an ability of a [Store] that cannot keep results of any size.
type ResultLimiter interface {
	// MaxResult is how many bytes the Data of a [Result] may have. A completion with a larger one fails.
	MaxResult() int
}
