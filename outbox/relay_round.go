package outbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/safetext"
)

// batch is the rows of one round, and what becomes of them. It is all that a relay holds in memory.
type batch struct {
	r       *Relay
	began   time.Time
	leases  map[int]Lease // what the rows were fetched under
	rows    []Row
	stuck   map[muteID]bool // nothing more of these is published in this round
	parked  map[muteID]bool // a row of theirs was parked in this round
	fresh   bool            // nothing that has failed before is wanted
	retry   bool            // what has failed before is wanted again
	partial bool            // only busy shards were looked at
	brokers int             // rows that failed because of the broker, the last error in seen.Err
	crowded bool            // there were more failures than can be remembered
	out     settling
	seen    Round
}

// settling is what became of rows and is to be recorded. Rows that were parked are kept until it is, for those who are told of them.
type settling struct {
	leases map[int]Lease
	what   Settlement
	parked []parkedRow
}

type parkedRow struct {
	row Row
	err error
}

// hopeless reports whether something was given to the producer, and the broker took nothing of it.
func (b *batch) hopeless() bool {
	return b.brokers > 0 && b.brokers == b.seen.Failed && b.seen.Sent+b.seen.Parked == 0
}

// fetch gets the rows of a round.
func (b *batch) fetch(ctx context.Context) error {
	r := b.r
	b.began = time.Now()
	r.mutes.clean(b.began)
	shards := b.wanted()
	if len(shards) == 0 {
		return nil
	}
	f := Fetch{Shards: shards, Limit: r.cfg.Batch, Bytes: r.cfg.BatchBytes, Halt: r.cfg.WhenParked == Halt}
	f.Skip, f.SkipRows = r.mutes.skip(b.began, b.fresh)
	call, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	rows, err := r.cfg.Store.Fetch(call, f)
	if err != nil {
		if ctx.Err() == nil {
			r.health.store.set(ctx, "fetch", err)
		}
		return err
	}
	r.health.store.clear(ctx, "fetch")
	b.take(shards, rows)
	if len(rows) == 0 && len(r.mutes) == 0 && !b.partial && !r.unseen() {
		r.health.nothing()
	}
	return nil
}

// take sorts what was fetched, and notes which shards have more.
func (b *batch) take(shards []Lease, rows []Row) {
	count := map[int]int{}
	for i := range rows {
		count[rows[i].Shard]++
	}
	b.leases = make(map[int]Lease, len(shards))
	quota := (b.r.cfg.Batch + len(shards) - 1) / len(shards)
	for _, l := range shards {
		b.leases[l.Shard] = l
		b.r.busy[l.Shard] = count[l.Shard] >= quota
	}
	slices.SortFunc(rows, func(a, b Row) int { return int(min(max(a.Seq-b.Seq, -1), 1)) })
	b.rows, b.seen.Rows = rows, len(rows)
}

// publish sends the rows in waves, and leaves in out what became of them. It begins no wave after ctx has ended; a wave that was begun ends
// with produce at the latest.
func (b *batch) publish(ctx, produce context.Context) {
	b.stuck, b.parked = map[muteID]bool{}, map[muteID]bool{}
	for wave := range waves(b.rows) {
		if ctx.Err() != nil {
			break
		}
		b.publishWave(ctx, produce, wave)
	}
	b.block()
	b.seen.Took = time.Since(b.began)
	b.out.leases, b.out.what.Keep = b.leases, b.r.cfg.Keep > 0
	b.r.pending = &b.out
	if ctx.Err() == nil {
		b.r.health.round(ctx, b)
	}
}

// publishWave sends those rows of a wave that may be sent now.
func (b *batch) publishWave(ctx, produce context.Context, wave []int) {
	held := b.r.share.held()
	rows, msgs := wave[:0], make([]*idem.Message, 0, len(wave))
	for _, i := range wave {
		row := &b.rows[i]
		id := muteIDOf(row)
		if row.Blocked {
			b.stuck[id] = true // also what is behind it, whatever the store says
		}
		if b.stuck[id] || b.r.mutes[id].rests(b.began, b.fresh) {
			continue
		}
		if lease, ok := held[row.Shard]; !ok || lease != b.leases[row.Shard] {
			continue
		}
		rows, msgs = append(rows, i), append(msgs, row.Message())
	}
	if len(msgs) == 0 {
		return
	}
	b.r.health.asks()
	answered := false
	for n, err := range b.produce(produce, rows, msgs) {
		answered = b.judge(ctx, &b.rows[rows[n]], err) || answered
	}
	if answered {
		b.r.health.answers()
	}
}

// produce publishes, and returns an error for each of rows, which are indexes.
func (b *batch) produce(ctx context.Context, rows []int, msgs []*idem.Message) []error {
	ctx, told := b.r.beginPublish(ctx, b.rows, rows)
	errs := b.r.cfg.Producer.ProduceEach(ctx, msgs)
	if len(errs) != len(msgs) {
		errs = slices.Clip(errs[:min(len(errs), len(msgs))])
		for len(errs) < len(msgs) {
			errs = append(errs, errNoResult)
		}
	}
	told.end(errs)
	return errs
}

var errNoResult = errors.New("outbox: the producer returned fewer results than it was given messages")

// judge decides what the result of a row means, and reports whether it is an answer of the broker.
func (b *batch) judge(ctx context.Context, row *Row, err error) bool {
	switch {
	case err == nil:
		b.out.what.Sent = append(b.out.what.Sent, row.Seq)
		b.r.mutes.settled(row)
		b.seen.Sent++
		if age := time.Since(row.Added); age > b.seen.Delay {
			b.seen.Delay = age
		}
		return true
	case errors.Is(err, idem.ErrTooLarge), errors.Is(err, idem.ErrRefused):
		b.park(row, err)
		return true
	case errors.Is(err, idem.ErrNoTopic):
		blamed, ok := b.r.mutes.failed(row, false)
		if ok && blamed >= b.r.cfg.MaxAttempts {
			b.park(row, err)
			return true
		}
		b.fail(row, ok)
		b.r.blamed(ctx, row, blamed, err)
		return true
	default:
		_, ok := false, true
		if ctx.Err() == nil { // else it is we who stopped waiting
			_, ok = b.r.mutes.failed(row, true)
		}
		b.fail(row, ok)
		b.brokers++
		b.seen.Err = err
		return false
	}
}

// fail leaves a row and what is behind it for later: after a failure nothing else of its aggregate may go out before it (O-09).
func (b *batch) fail(row *Row, remembered bool) {
	b.stuck[muteIDOf(row)] = true
	b.seen.Failed++
	b.crowded = b.crowded || !remembered
}

// park gives a row up. What is behind it is left for the next round, or blocked.
func (b *batch) park(row *Row, err error) {
	id := muteIDOf(row)
	b.stuck[id], b.parked[id] = true, true
	b.r.mutes.settled(row)
	if b.out.what.Parked == nil {
		b.out.what.Parked = map[int64]string{}
	}
	b.out.what.Parked[row.Seq] = cutText(safetext.Text(err))
	b.out.parked = append(b.out.parked, parkedRow{*row, err})
	b.seen.Parked++
}

// block notes which rows wait for a person: those behind a row that was parked earlier, and those behind one of this round.
func (b *batch) block() {
	if b.r.cfg.WhenParked != Halt {
		return
	}
	for i := range b.rows {
		row := &b.rows[i]
		if _, itself := b.out.what.Parked[row.Seq]; itself || row.Entry.Key == "" {
			continue
		}
		if row.Blocked || b.parked[muteIDOf(row)] && b.behind(row) {
			b.out.what.Blocked = append(b.out.what.Blocked, row.Seq)
			b.seen.Blocked++
		}
	}
}

// behind reports whether row comes after the row of its aggregate that was parked in this round.
func (b *batch) behind(row *Row) bool {
	return slices.ContainsFunc(b.out.parked, func(p parkedRow) bool {
		return p.row.Seq < row.Seq && muteIDOf(&p.row) == muteIDOf(row)
	})
}

// settle records what became of the rows of a round. What fails is tried again before anything else is done, so that a database that is
// away makes no duplicates; the store knows whether the shards are still ours (O-13).
func (r *Relay) settle(ctx context.Context) error {
	s := r.pending
	if s == nil || len(s.what.Sent)+len(s.what.Parked)+len(s.what.Blocked) == 0 {
		r.pending = nil
		return nil
	}
	call, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	leases := make([]Lease, 0, len(s.leases))
	for _, l := range s.leases {
		leases = append(leases, l)
	}
	lost, err := r.cfg.Store.Settle(call, r.id, leases, s.what)
	if err != nil {
		if ctx.Err() == nil {
			r.health.store.set(ctx, "settle", err)
		}
		return err
	}
	r.pending = nil
	r.health.store.clear(ctx, "settle")
	if len(lost) > 0 {
		r.share.drop(lost, s.leases)
		r.cfg.Logger.WarnContext(ctx, "outbox shards were taken over by another relay, some events may be published twice",
			"relay", r.id, "shards", lost)
	}
	for i := range s.parked {
		if p := &s.parked[i]; !slices.Contains(lost, p.row.Shard) {
			r.tellParked(ctx, p)
		}
	}
	return nil
}

// maxReason is the greatest length of the reason that a row was parked for.
const maxReason = 1024

// cutText makes an error's text fit for a table and a log: any error may say anything.
func cutText(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "")
	}
	return s
}
