package soak

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/dynamostore"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/internal/history"
)

// entry is an entry of the history in the file of a worker.
type entry struct {
	From, To int64 // Unix nanoseconds
	Event    uint32
	Deed     history.Deed
	Fence    uint64
	Key      uint64 // the hash of the idempotency key of an effect
}

// recorder appends to the file of one worker process. A write survives the death of the process,
// and is whole or absent: the kernel finishes a write to a file.
type recorder struct{ file *os.File }

func (r recorder) write(all []entry) error {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, all); err != nil {
		return err
	}
	_, err := r.file.Write(b.Bytes())
	return err
}

func number(k dedup.Key) uint32 {
	n, err := strconv.ParseUint(k.ID, 10, 32)
	if err != nil {
		panic(err) // the IDs of the load are numbers
	}
	return uint32(n)
}

// claim records the claims that the store grants, and the events that it knows.
func (r recorder) claim(reqs []dedup.Request, answers []dedup.Answer, claim func() error) error {
	from := time.Now().UnixNano()
	if err := claim(); err != nil {
		return err
	}
	to := time.Now().UnixNano()
	all := make([]entry, 0, len(reqs))
	for i, a := range answers {
		switch {
		case a.Verdict.Held():
			all = append(all, entry{from, to, number(reqs[i].Key), history.Claimed, a.Fence, 0})
		case a.Verdict == dedup.Done:
			all = append(all, entry{from, to, number(reqs[i].Key), history.Found, 0, 0})
		}
	}
	return r.write(all)
}

func (r recorder) complete(done []dedup.Completion, complete func() error) error {
	from := time.Now().UnixNano()
	failed := complete()
	var lost *dedup.LostError
	if failed != nil && !errors.As(failed, &lost) {
		return failed
	}
	to := time.Now().UnixNano()
	all := make([]entry, 0, len(done))
	for i, d := range done {
		if lost == nil || !slices.Contains(lost.Claims, i) {
			all = append(all, entry{from, to, number(d.Key), history.Completed, d.Fence, 0})
		}
	}
	return errors.Join(failed, r.write(all))
}

// look records the events that the store knows.
func (r recorder) look(reqs []dedup.Request, answers []dedup.Answer, look func() error) error {
	from := time.Now().UnixNano()
	if err := look(); err != nil {
		return err
	}
	to := time.Now().UnixNano()
	var all []entry
	for i, a := range answers {
		if a.Verdict == dedup.Done {
			all = append(all, entry{from, to, number(reqs[i].Key), history.Found, 0, 0})
		}
	}
	return r.write(all)
}

// recordTx records the events of a transaction once it is committed, and the events that the store
// knows.
func recordTx[Tx any](ctx context.Context, r recorder, s dedup.TxStore[Tx], limit time.Duration,
	reqs []dedup.Request, answers []dedup.Answer, fn func(Tx) ([]dedup.Completion, error)) error {
	from := time.Now().UnixNano()
	var all []entry
	found := func() {
		to := time.Now().UnixNano()
		for i, a := range answers {
			if a.Verdict == dedup.Done {
				all = append(all, entry{from, to, number(reqs[i].Key), history.Found, 0, 0})
			}
		}
	}
	asked := false
	failed := s.ClaimTx(ctx, limit, reqs, answers, func(tx Tx) ([]dedup.Completion, error) {
		if !asked {
			asked = true
			found() // these answers are true even if the transaction is rolled back
		}
		return fn(tx)
	})
	if failed == nil {
		if !asked {
			found()
		}
		to := time.Now().UnixNano()
		for i, a := range answers {
			if a.Verdict == dedup.Fresh { // a handler of the soak gives no event up
				all = append(all, entry{from, to, number(reqs[i].Key), history.Completed, a.Fence, 0})
			}
		}
	}
	return errors.Join(failed, r.write(all))
}

// The recorded stores are the stores of a worker with all their abilities.
type (
	recordedPg struct {
		*pgstore.Store
		recorder
	}
	recordedSQL struct {
		*sqlstore.Store
		recorder
	}
	recordedRedis struct {
		*redisstore.Store
		recorder
	}
	recordedDynamo struct {
		*dynamostore.Store
		recorder
	}
	recordedMemory struct {
		*memstore.Store
		recorder
	}
)

func (s *recordedPg) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request, answers []dedup.Answer) error {
	return s.claim(reqs, answers, func() error { return s.Store.Claim(ctx, t, lease, reqs, answers) })
}

func (s *recordedPg) Complete(ctx context.Context, done []dedup.Completion) error {
	return s.complete(done, func() error { return s.Store.Complete(ctx, done) })
}

func (s *recordedPg) ClaimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(pgx.Tx) ([]dedup.Completion, error)) error {
	return recordTx[pgx.Tx](ctx, s.recorder, s.Store, limit, reqs, answers, fn)
}

func (s *recordedSQL) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request, answers []dedup.Answer) error {
	return s.claim(reqs, answers, func() error { return s.Store.Claim(ctx, t, lease, reqs, answers) })
}

func (s *recordedSQL) Complete(ctx context.Context, done []dedup.Completion) error {
	return s.complete(done, func() error { return s.Store.Complete(ctx, done) })
}

func (s *recordedSQL) ClaimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(*sql.Tx) ([]dedup.Completion, error)) error {
	return recordTx[*sql.Tx](ctx, s.recorder, s.Store, limit, reqs, answers, fn)
}

func (s *recordedRedis) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request, answers []dedup.Answer) error {
	return s.claim(reqs, answers, func() error { return s.Store.Claim(ctx, t, lease, reqs, answers) })
}

func (s *recordedRedis) Complete(ctx context.Context, done []dedup.Completion) error {
	return s.complete(done, func() error { return s.Store.Complete(ctx, done) })
}

func (s *recordedDynamo) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request, answers []dedup.Answer) error {
	return s.claim(reqs, answers, func() error { return s.Store.Claim(ctx, t, lease, reqs, answers) })
}

func (s *recordedDynamo) Complete(ctx context.Context, done []dedup.Completion) error {
	return s.complete(done, func() error { return s.Store.Complete(ctx, done) })
}

func (s *recordedMemory) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request, answers []dedup.Answer) error {
	return s.claim(reqs, answers, func() error { return s.Store.Claim(ctx, t, lease, reqs, answers) })
}

func (s *recordedMemory) Complete(ctx context.Context, done []dedup.Completion) error {
	return s.complete(done, func() error { return s.Store.Complete(ctx, done) })
}

func (s *recordedPg) Look(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	return s.look(reqs, answers, func() error { return s.Store.Look(ctx, reqs, answers) })
}

func (s *recordedSQL) Look(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	return s.look(reqs, answers, func() error { return s.Store.Look(ctx, reqs, answers) })
}

func (s *recordedRedis) Look(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	return s.look(reqs, answers, func() error { return s.Store.Look(ctx, reqs, answers) })
}

func (s *recordedDynamo) Look(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	return s.look(reqs, answers, func() error { return s.Store.Look(ctx, reqs, answers) })
}

func (s *recordedMemory) Look(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	return s.look(reqs, answers, func() error { return s.Store.Look(ctx, reqs, answers) })
}

func (s *recordedPg) LookTx(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	return s.look(reqs, answers, func() error { return s.Store.LookTx(ctx, reqs, answers) })
}

func (s *recordedSQL) LookTx(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	return s.look(reqs, answers, func() error { return s.Store.LookTx(ctx, reqs, answers) })
}
