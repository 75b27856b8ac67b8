package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// run is one run of one row.
type run struct {
	*lab
	row   *row
	topic *topic
	group string // a new one each time
	scope string // of the events
	meter *meter
	sql   *database // nil: Postgres

	server time.Duration // CPU time of Postgres at the end
	rounds rounds        // of a relay
}

// sample has the measurements of one run.
type sample struct {
	rate    float64 // a second, in the row's unit
	all     float64 // deliveries a second
	took    time.Duration
	allocs  float64 // per delivery, of the whole process
	bytes   float64
	client  time.Duration // CPU time per delivery, of this process
	server  time.Duration // and of Postgres
	perCall float64       // events per call of a batch handler
	store   float64       // bytes per remembered event, in Postgres, with indexes
	indexes float64       // of them

	round int  // of the run; rows are compared by the samples of the same round
	load  load // by other processes

	rounds                 int // of a relay, and their waits
	fetch, produce, settle time.Duration
}

// No row that works takes a tenth of its time.
const (
	runTimeout      = 3 * time.Minute
	quickRunTimeout = 40 * time.Second
	commitWait      = 10 * time.Second // for the commit of handled events
)

// measure runs a row once and verifies the effects.
func (b *bench) measure(ctx context.Context, r *row) (s sample, err error) {
	limit := runTimeout
	if b.quick {
		limit = quickRunTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", r.name, err)
		}
	}()
	x := &run{lab: b.lab, row: r, group: b.lab.id + "-" + rand.Text()[:8]}
	x.scope = x.group
	if x.topic, err = b.topic(ctx, r); err != nil {
		return s, err
	}
	if r.empty {
		defer b.lab.dropTopic(x.topic)
	}
	defer func() {
		if x.sql != nil {
			x.sql.close()
		}
	}()
	if err := b.prepare(ctx, x); err != nil {
		return s, err
	}
	wait := x.topic.unique
	if r.again {
		wait = r.spec.deliveries
	}
	x.meter = newMeter(x.topic.unique, wait)
	runtime.GC()
	stop, err := b.profile(r.name)
	if err != nil {
		return s, err
	}
	server := x.serverCPU(ctx)
	began := proc.usage(x.roots)
	err = x.do(ctx)
	foreign := began.until(proc.usage(x.roots))
	server = x.server - server
	stop()
	defer func() { _ = x.admin.DeleteConsumerGroup(x.group) }() // its members may not have left yet
	if err != nil {
		return s, err
	}
	b.last, b.scope = r.name, x.scope
	if err := x.verify(ctx); err != nil {
		return s, err
	}
	s, err = x.sample(ctx)
	s.server, s.load = server/time.Duration(r.spec.deliveries), foreign
	return s, err
}

// topic returns the topic that the row consumes or publishes to.
func (b *bench) topic(ctx context.Context, r *row) (*topic, error) {
	if r.empty {
		return b.lab.emptyTopic(r.spec)
	}
	return b.lab.topic(ctx, r.spec)
}

// prepare gives the row empty tables, or those of the row it comes after.
func (b *bench) prepare(ctx context.Context, x *run) error {
	if x.row.sql != nil {
		b.last = ""
		return x.openDatabase(ctx, x.topic.unique)
	}
	if x.row.after == "" {
		b.last = ""
		orders := 0
		if x.row.check == inOrders || x.row.check == inOutbox {
			orders = x.topic.unique
		}
		if err := b.lab.reset(ctx, orders); err != nil {
			return err
		}
		if x.row.backlog != nil {
			return x.row.backlog(ctx, x)
		}
		return b.lab.fill(ctx, x)
	}
	if b.last != x.row.after {
		before := b.row(x.row.after)
		if before == nil {
			return fmt.Errorf("there is no row %s", x.row.after)
		}
		if _, err := b.measure(ctx, before); err != nil {
			return err
		}
	}
	x.scope = b.scope
	return nil
}

// do consumes until all effects are there.
func (x *run) do(ctx context.Context) error {
	work, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- x.row.consume(work, x) }()
	select {
	case <-x.meter.done:
	case err := <-ended:
		select {
		case <-x.meter.done: // it ends by itself
			x.server = x.serverCPU(ctx)
			return err
		default:
			return errors.Join(errors.New("the consumer ended before the last effect"), err)
		}
	case <-ctx.Done():
		stop()
		return errors.Join(
			fmt.Errorf(
				"%d of what was waited for did not come (%w)",
				x.meter.left.Load(),
				ctx.Err(),
			),
			<-ended,
		)
	}
	err := x.settle(ctx)
	x.server = x.serverCPU(
		ctx,
	) // before a session is closed in the middle of a statement, and its time forgotten
	stop()
	return errors.Join(err, <-ended)
}

// settle waits for the last commit. A handler sees that it ran, but not the commit.
func (x *run) settle(ctx context.Context) error {
	switch x.row.check {
	case nothing, inProcess, inTopic:
		return nil
	case inOrders, inAccounts, inOutbox:
	}
	for began := time.Now(); ; {
		now := time.Now()
		n, err := x.committed(ctx)
		if err != nil {
			return err
		}
		if n >= x.topic.unique {
			if now.After(x.meter.ended) && !x.row.again {
				x.meter.ended = now
			}
			return nil
		}
		if now.Sub(began) > commitWait {
			return fmt.Errorf(
				"WRONG: all %d events were handled, %d effects are committed",
				x.topic.unique,
				n,
			)
		}
	}
}

func (x *run) committed(ctx context.Context) (int, error) {
	if x.row.check == inAccounts {
		n, _, err := x.booked(ctx)
		return int(n), err
	}
	once, more, err := x.paid(ctx)
	return once + more, err
}

// verify compares the effects with the events: the row fails if there is one too many or too few.
func (x *run) verify(ctx context.Context) error {
	switch x.row.check {
	case nothing:
		return nil
	case inProcess:
		return x.meter.each(1)
	case inTopic:
		return x.verifyTopic(ctx)
	case inOutbox:
		return errors.Join(x.verifyOrders(ctx), x.allWait(ctx))
	case inOrders:
		return x.verifyOrders(ctx)
	case inAccounts:
		return x.verifyAccounts(ctx)
	}
	return nil
}

func (x *run) verifyOrders(ctx context.Context) error {
	once, more, err := x.paid(ctx)
	if err == nil && (more > 0 || once != x.topic.unique) {
		err = fmt.Errorf(
			"WRONG: %d events, %d orders paid once, %d more than once",
			x.topic.unique,
			once,
			more,
		)
	}
	return err
}

func (x *run) verifyAccounts(ctx context.Context) error {
	var want int64
	seen := make(map[int]bool)
	list, _ := x.topic.generate()
	for i := range list {
		if !seen[list[i].Seq] {
			seen[list[i].Seq] = true
			want += list[i].Amount
		}
	}
	n, sum, err := x.booked(ctx)
	if err == nil && (int(n) != x.topic.unique || sum != want) {
		err = fmt.Errorf(
			"WRONG: %d events of %d in all, %d payments of %d booked",
			x.topic.unique,
			want,
			n,
			sum,
		)
	}
	return err
}

func (x *run) sample(ctx context.Context) (s sample, err error) {
	m := x.meter
	s.took = m.ended.Sub(m.began)
	each := float64(x.row.spec.deliveries)
	s.client = m.cpu / time.Duration(x.row.spec.deliveries)
	s.all = each / s.took.Seconds()
	if s.rate = float64(x.topic.unique) / s.took.Seconds(); x.row.unit == deliveries {
		s.rate = s.all
	}
	s.allocs = float64(m.after.Mallocs-m.before.Mallocs) / each
	s.bytes = float64(m.after.TotalAlloc-m.before.TotalAlloc) / each
	s.rounds, s.fetch = int(x.rounds.n.Load()), time.Duration(x.rounds.fetch.Load())
	s.produce, s.settle = time.Duration(
		x.rounds.produce.Load(),
	), time.Duration(
		x.rounds.settle.Load(),
	)
	if calls := m.calls.Load(); calls > 0 {
		s.perCall = float64(x.topic.unique) / float64(calls)
	}
	if x.row.fill > 0 {
		s.store, s.indexes, err = x.storeSize(ctx, x.topic.unique+x.row.fill)
	}
	return s, err
}

// profile begins a CPU profile if one of this row is wanted.
func (b *bench) profile(name string) (stop func(), err error) {
	if !slices.Contains(strings.Split(b.cpuprofile, ","), name) {
		return func() {}, nil
	}
	f, err := os.Create(name + ".cpu.prof")
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
		if f, err := os.Create(name + ".mem.prof"); err == nil {
			_ = pprof.Lookup("allocs").WriteTo(f, 0)
			_ = f.Close()
		}
	}, nil
}
