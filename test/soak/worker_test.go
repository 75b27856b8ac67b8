package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/history"
)

// workerEnv has the spec of a worker. The test binary is a worker then.
const workerEnv = "IDEM_SOAK_WORKER"

const (
	eventType = "soak"
	maxBatch  = 200
	lease     = 3 * time.Second
)

// event is the value of a record.
type event struct {
	N uint32 `json:"n"`
}

// spec has the settings of a worker process.
type spec struct {
	Name    string // also the static ID of the member
	Kind    kind
	Client  clientName
	Brokers []string
	Topic   string // also the group
	Place   place
	History string // the file for the entries
}

// worker is a worker process.
type worker struct {
	spec
	recorder
	handled atomic.Int64 // events in runs of handlers
}

func work(text string) (err error) {
	w := &worker{}
	if err := json.Unmarshal([]byte(text), &w.spec); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if w.file, err = os.OpenFile(w.History, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.file.Close()) }()
	at, err := w.Place.open(ctx, w.recorder)
	if err != nil {
		return err
	}
	defer at.close()
	router := idem.NewRouter(idem.Type(idem.Fixed(eventType)), idem.MaxBatch(maxBatch), idem.Timeout(20*time.Second),
		idem.Retry(idem.RetryPolicy{MaxAttempts: idem.NoLimit, InPlace: idem.Forever}))
	switch w.Kind {
	case on:
		idem.On(router, eventType, func(_ context.Context, e idem.Event[event]) error { return w.effect(e) })
	case onBatch:
		idem.OnBatch(router, eventType, func(_ context.Context, all []idem.Event[event]) error { return w.effect(all...) })
	case onTx, onBatchTx:
		at.register(router, w)
	}
	defer w.report()()
	if err := clients[w.Client](ctx, w, at.store, router); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// effect is the effect of a handler without a transaction: an entry of the history.
func (w *worker) effect(events ...idem.Event[event]) error {
	w.handled.Add(int64(len(events)))
	now := time.Now().UnixNano()
	all := make([]entry, len(events))
	for i, e := range events {
		all[i] = entry{now, now, e.Data.N, history.Effect, e.Fence(), hash(e.IdempotencyKey())}
	}
	return w.write(all)
}

// hash is equal in all processes.
func hash(key string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, key) // never fails
	return h.Sum64()
}

// report sends the test the number of events in runs so far, until the returned function is called.
func (w *worker) report() (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	var reporter sync.WaitGroup
	reporter.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for last := int64(0); ; {
			if n := w.handled.Load(); n != last {
				fmt.Println(n)
				last = n
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		stop()
		reporter.Wait()
	}
}
