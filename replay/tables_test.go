package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/lane"
)

func TestPlanRange(t *testing.T) {
	for name, c := range map[string]struct {
		r    Range
		b    bounds
		want PartitionPlan
	}{
		"inside":                 {Range{First: 3, End: 7}, bounds{oldest: 1, stable: 9, newest: 9}, PartitionPlan{First: 3, End: 7}},
		"to the end":             {Range{First: 3, End: -1}, bounds{stable: 9, newest: 9}, PartitionPlan{First: 3, End: 9}},
		"begin deleted":          {Range{First: 3, End: 7}, bounds{oldest: 5, stable: 9, newest: 9}, PartitionPlan{First: 5, End: 7, Deleted: 2}},
		"all deleted":            {Range{First: 3, End: 7}, bounds{oldest: 8, stable: 9, newest: 9}, PartitionPlan{First: 8, End: 8, Deleted: 4}},
		"deleted exactly before": {Range{First: 3, End: 7}, bounds{oldest: 3, stable: 9, newest: 9}, PartitionPlan{First: 3, End: 7}},
		"beyond the log":         {Range{First: 3, End: 12}, bounds{stable: 9, newest: 9}, PartitionPlan{First: 3, End: 9, Beyond: 3}},
		"all beyond the log":     {Range{First: 10, End: 12}, bounds{stable: 9, newest: 9}, PartitionPlan{First: 10, End: 10, Beyond: 2}},
		"open transaction":       {Range{First: 3, End: 9}, bounds{stable: 6, newest: 9}, PartitionPlan{First: 3, End: 6, Open: 3}},
		"open and to the end":    {Range{First: 7, End: -1}, bounds{stable: 6, newest: 9}, PartitionPlan{First: 7, End: 7, Open: 2}},
		"empty log":              {Range{First: 0, End: -1}, bounds{}, PartitionPlan{}},
		"to the end, beyond":     {Range{First: 5000, End: -1}, bounds{stable: 200, newest: 200}, PartitionPlan{First: 5000, End: 5000, Beyond: 4800}},
		"to the end, at the end": {Range{First: 9, End: -1}, bounds{stable: 9, newest: 9}, PartitionPlan{First: 9, End: 9}},
	} {
		require.Equal(t, c.want, planRange(c.r, c.b), name)
	}
}

func TestPlanTime(t *testing.T) {
	at := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	both, since, until, all := Between(at, at.Add(1)), Between(at, time.Time{}), Between(time.Time{}, at), Between(time.Time{}, time.Time{})
	for name, c := range map[string]struct {
		w    Window
		b    bounds
		want PartitionPlan
	}{
		"inside":                           {both, bounds{oldest: 0, stable: 9, newest: 9, from: 3, to: 7}, PartitionPlan{First: 3, End: 7}},
		"to the end":                       {since, bounds{stable: 9, newest: 9, from: 3, to: -1}, PartitionPlan{First: 3, End: 9}},
		"to in the future":                 {both, bounds{stable: 9, newest: 9, from: 3, to: -1}, PartitionPlan{First: 3, End: 9}},
		"from in the future":               {since, bounds{stable: 9, newest: 9, from: -1, to: -1}, PartitionPlan{First: 9, End: 9}},
		"all":                              {all, bounds{stable: 9, newest: 9, from: 0, to: -1}, PartitionPlan{First: 0, End: 9}},
		"all of the rest":                  {all, bounds{oldest: 4, stable: 9, newest: 9, from: 4, to: -1}, PartitionPlan{First: 4, End: 9, MaybeDeleted: true}},
		"until":                            {until, bounds{stable: 9, newest: 9, to: 5}, PartitionPlan{End: 5}},
		"perhaps deleted":                  {both, bounds{oldest: 3, stable: 9, newest: 9, from: 3, to: 7}, PartitionPlan{First: 3, End: 7, MaybeDeleted: true}},
		"before the log":                   {both, bounds{oldest: 3, stable: 9, newest: 9, from: 3, to: 3}, PartitionPlan{First: 3, End: 3, MaybeDeleted: true}},
		"younger than the log's beginning": {both, bounds{oldest: 3, stable: 9, newest: 9, from: 4, to: 7}, PartitionPlan{First: 4, End: 7}},
		"emptied log":                      {both, bounds{oldest: 9, stable: 9, newest: 9, from: -1, to: -1}, PartitionPlan{First: 9, End: 9, MaybeDeleted: true}},
		"empty log":                        {both, bounds{from: -1, to: -1}, PartitionPlan{}},
		"open transaction":                 {since, bounds{stable: 6, newest: 9, from: 3, to: -1}, PartitionPlan{First: 3, End: 6, Open: 3}},
		"all open":                         {since, bounds{stable: 6, newest: 9, from: 7, to: -1}, PartitionPlan{First: 7, End: 7, Open: 2}},
		"times out of order":               {both, bounds{stable: 9, newest: 9, from: 7, to: 4}, PartitionPlan{First: 7, End: 7}},
	} {
		require.Equal(t, c.want, planTime(c.w, place{}, c.b), name)
	}
	require.EqualValues(t, 1, milli(time.Unix(0, 1)), "a record of the millisecond before is too old")
	require.EqualValues(t, 1, milli(time.UnixMilli(1)))
	require.EqualValues(t, 0, milli(time.Unix(-5, 0)), "negative times have another meaning in Kafka")
}

func TestWindow_Validate(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		w    Window
		want string // empty: valid
	}{
		"zero":            {Window{}, "not set"},
		"between":         {Between(now, now.Add(1)), ""},
		"no end":          {Between(now, time.Time{}), ""},
		"backwards":       {Between(now, now), "not after its begin"},
		"range":           {Offsets(Range{Topic: "a", End: 3}), ""},
		"to the end":      {Offsets(Range{Topic: "a", First: 3, End: -1}), ""},
		"empty range":     {Offsets(Range{Topic: "a", First: 3, End: 3}), "empty or invalid"},
		"negative":        {Offsets(Range{Topic: "a", First: -3, End: 3}), "empty or invalid"},
		"other topic":     {Offsets(Range{Topic: "b", End: 3}), "does not consume"},
		"partition twice": {Offsets(Range{Topic: "a", End: 3}, Range{Topic: "a", First: 3, End: 4}), "a/0 twice"},
	} {
		err := errors.Join(c.w.validate([]string{"a"})...)
		if c.want == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.want, name)
		}
	}
}

func TestConfig_Validate(t *testing.T) {
	good := Config{Window: Between(time.Time{}, time.Time{}), Scope: OwnScope("fix-1")}.withDefaults()
	require.NoError(t, good.validate([]string{"a"}))
	for want, change := range map[string]func(*Config){
		"Scope is not set":       func(c *Config) { c.Scope = Scope{} },
		"a name has 1 to 64":     func(c *Config) { c.Scope = OwnScope("") },
		"OwnScope(\"a b\")":      func(c *Config) { c.Scope = OwnScope("a b") },
		"Rate is negative":       func(c *Config) { c.Rate = -1 },
		"Partitions is 257":      func(c *Config) { c.Partitions = 257 },
		"MaxFailed is 100001":    func(c *Config) { c.MaxFailed = 100_001 },
		"BrokerWait is negative": func(c *Config) { c.BrokerWait = -1 },
		"for an own scope": func(c *Config) {
			c.Scope, c.DeadLetterTopic = SameScope(), func(string) string { return "d" }
		},
	} {
		bad := good
		change(&bad)
		require.ErrorContains(t, bad.validate([]string{"a"}), want)
	}
}

// The order by key of KeyOrdered handlers is not broken (rule 4).
func TestConfig_CheckOrder(t *testing.T) {
	for name, c := range map[string]struct {
		cfg   Config
		types []string
		want  string
	}{
		"no such handler":    {Config{Scope: SameScope(), MaxFailed: 10}, nil, ""},
		"same scope":         {Config{Scope: SameScope(), MaxFailed: -1}, []string{"paid"}, "use OwnScope"},
		"own scope":          {Config{Scope: OwnScope("a"), MaxFailed: 10}, []string{"paid"}, "MaxFailed to -1"},
		"stops at the first": {Config{Scope: OwnScope("a"), MaxFailed: -1}, []string{"paid"}, ""},
	} {
		err := c.cfg.checkOrder(c.types)
		if c.want == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.want, name)
		}
	}
}

func TestPlan_Check(t *testing.T) {
	plan := func(parts ...PartitionPlan) Plan { return Plan{Scope: "s", Partitions: parts} }
	for name, c := range map[string]struct {
		p    Plan
		skip bool
		want string
	}{
		"good":           {plan(PartitionPlan{Topic: "a", End: 3}, PartitionPlan{Topic: "a", Partition: 1}), false, ""},
		"other scope":    {Plan{Scope: "x"}, false, "scope"},
		"other topic":    {plan(PartitionPlan{Topic: "b"}), false, "does not consume"},
		"backwards":      {plan(PartitionPlan{Topic: "a", First: 4, End: 3}), false, "invalid range"},
		"twice":          {plan(PartitionPlan{Topic: "a"}, PartitionPlan{Topic: "a"}), false, "twice"},
		"deleted":        {plan(PartitionPlan{Topic: "a", Deleted: 2}), false, "a/0 (2 offsets)"},
		"maybe deleted":  {plan(PartitionPlan{Topic: "a", MaybeDeleted: true}), false, "a/0 (perhaps)"},
		"deleted, skips": {plan(PartitionPlan{Topic: "a", Deleted: 2}), true, ""},
	} {
		err := c.p.check("s", []string{"a"}, c.skip)
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.want, name)
		var deleted *DeletedError
		require.Equal(t, strings.Contains(name, "deleted"), errors.As(err, &deleted), name)
	}
}

// A plan is continued at a position, also after both were kept as JSON.
func TestPlan_From(t *testing.T) {
	first := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := Plan{Scope: "s", Made: first, Partitions: []PartitionPlan{
		{Topic: "a", First: 3, End: 9, FirstTime: first, Deleted: 3}, {Topic: "a", Partition: 1, First: 3, End: 9},
		{Topic: "b", First: 3, End: 9}, {Topic: "b", Partition: 1, First: 3, End: 9, MaybeDeleted: true},
	}}
	at := Position{"a": {0: 5, 1: 1}, "b": {0: 99}}
	for _, v := range []any{&p, &at} {
		data, err := json.Marshal(v)
		require.NoError(t, err)
		switch v.(type) {
		case *Plan:
			p = Plan{}
			require.NoError(t, json.Unmarshal(data, &p))
		default:
			at = nil
			require.NoError(t, json.Unmarshal(data, &at))
		}
	}
	next := p.From(at)
	require.EqualValues(t, 3, p.Partitions[0].First, "the plan is unchanged")
	require.Equal(t, []PartitionPlan{
		{Topic: "a", First: 5, End: 9, FirstTime: first}, {Topic: "a", Partition: 1, First: 3, End: 9},
		{Topic: "b", First: 9, End: 9}, {Topic: "b", Partition: 1, First: 3, End: 9, MaybeDeleted: true},
	}, next.Partitions)
	require.EqualValues(t, 16, next.Records())
}

// A printed plan is bounded, and names each loss.
func TestPlan_WriteTo(t *testing.T) {
	p := Plan{Scope: "s", Partitions: []PartitionPlan{{Topic: "gone", Deleted: 4, First: 4, End: 4}}}
	for i := range int32(maxRows + 5) {
		p.Partitions = append(p.Partitions, PartitionPlan{Topic: "t", Partition: i, End: 2, Beyond: 1, Open: 1})
	}
	var b bytes.Buffer
	n, err := p.WriteTo(&b)
	require.NoError(t, err)
	require.EqualValues(t, b.Len(), n)
	text := b.String()
	require.Contains(t, text, "scope s: at most 410 records\n")
	require.Contains(t, text, "and 5 partitions more\n")
	require.Contains(t, text, "warning: gone/0: 4 offsets of the window are deleted\n")
	require.Contains(t, text, "warning: t/0: 1 offsets of the window are not written yet\n")
	require.Contains(t, text, "open transaction\n")
	require.Contains(t, text, "and 211 warnings more\n")
	require.Less(t, strings.Count(text, "\n"), 410)
}

func TestBook(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct{ free, turn time.Duration }{
		"in turn":             {0, 0},
		"early":               {3 * time.Second, 3 * time.Second},
		"a little late":       {-50 * time.Millisecond, -50 * time.Millisecond},
		"late: bounded burst": {-time.Hour, -burst},
	} {
		turn, next := book(now.Add(c.free), now, time.Second)
		require.Equal(t, c.turn, turn.Sub(now), name)
		require.Equal(t, time.Second, next.Sub(turn), name)
	}
}

// The rate holds for all partitions together, begins without a burst, and ends with the run.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(50)
		began, done := time.Now(), make(chan struct{})
		for range 101 {
			require.NoError(t, p.wait(t.Context(), done))
		}
		require.Equal(t, 2*time.Second, time.Since(began))
		over := errors.New("over")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(over)
		require.ErrorIs(t, p.wait(ctx, done), over)
		close(done)
		require.ErrorIs(t, p.wait(t.Context(), done), lane.ErrClosed)
	})
	require.NoError(t, newPace(0).wait(t.Context(), nil))
}

func TestSpeed(t *testing.T) {
	var s speed
	require.Zero(t, s.add(0, 0))
	require.InDelta(t, 100, s.add(time.Second, 100), 0.1)
	for i := range 40 { // the rate of the beginning is forgotten
		s.add(time.Duration(i+2)*time.Second, 100+int64(i+1)*10)
	}
	require.InDelta(t, 10, s.add(42*time.Second, 510), 0.1)
	require.Less(t, len(s.samples), 15)
	for name, c := range map[string]struct {
		done, total int64
		rate        float64
		want        time.Duration
	}{
		"half": {50, 100, 10, 5 * time.Second}, "unknown": {50, 100, 0, -1}, "over": {100, 100, 0, 0},
		"too far": {0, 1 << 60, 1e-9, maxLeft}, "beyond": {120, 100, 1, 0},
	} {
		require.Equal(t, c.want, remaining(c.done, c.total, c.rate), name)
	}
}

// On a terminal the line never wraps. Elsewhere a run of days writes some hundred lines.
func TestBar(t *testing.T) {
	var out bytes.Buffer
	b := NewBar(&out)
	require.False(t, b.terminal)
	const total = int64(10_000_000_000)
	for at := time.Duration(0); at < 7*24*time.Hour; at += 5 * time.Second {
		b.Update(Progress{Done: 1 + int64(at/time.Second), Total: total, Elapsed: at, Rate: 1, Left: -1})
	}
	b.Update(Progress{Done: total, Total: total, Elapsed: 7 * 24 * time.Hour, Over: true, Counts: Counts{Handled: 3}})
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	require.Less(t, len(lines), 300)
	require.Greater(t, len(lines), 100)
	require.Equal(t, "  0% 11/10000000000, 1/s, 0 handled, 0 duplicates", lines[0])
	require.Equal(t, "100% 10000000000/10000000000, 0/s, took 168h0m, 3 handled, 0 duplicates", lines[len(lines)-1])

	out.Reset()
	b.terminal = true
	b.Update(Progress{Done: 5e9, Total: total, Elapsed: time.Hour, Rate: 123456.7, Left: 90 * time.Minute,
		Counts: Counts{DeadLetters: 1234567}})
	line := strings.TrimSuffix(strings.TrimPrefix(out.String(), "\r"), "\x1b[K")
	require.Len(t, line, lineWidth)
	require.Contains(t, line, "[##########..........]  50% 5000000000/10000000000, 123457/s, 1h30m left")
	out.Reset()
	b.Update(Progress{Over: true})
	require.True(t, strings.HasSuffix(out.String(), "\n"))
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	require.Equal(t, "[####################]", barText(0, 0))
	require.Equal(t, "[####################]", barText(9, 3))
	require.Equal(t, "[....................]", barText(-1, 3))
}

type refusing struct{ err error }

func (r refusing) Produce(context.Context, ...*idem.Message) error { return r.err }

// A failed event is listed after its dead letter, and the limit ends the run before the next one.
func TestFailures(t *testing.T) {
	dead := func(offset int64) *idem.Message {
		e := deadletter.Event{Group: "g", Class: idem.ClassFailed, Error: "broken", Attempts: 1,
			Message: &idem.Message{Topic: "a", Partition: 1, Offset: offset, Time: time.Now()}}
		return e.DeadLetter("d")
	}
	down := errors.New("down")
	f := &failures{limit: 2}
	var stopped error
	f.begin(refusing{down}, func(err error) { stopped = err })
	require.ErrorIs(t, f.Produce(t.Context(), dead(1)), down)
	require.Empty(t, f.all())
	f.begin(nil, func(err error) { stopped = err })
	require.NoError(t, f.Produce(t.Context(), dead(1)))
	require.NoError(t, f.Produce(t.Context(), &idem.Message{Topic: "unreadable"}))
	require.NoError(t, stopped)
	require.ErrorIs(t, f.Produce(t.Context(), dead(3)), ErrTooManyFailed)
	require.ErrorIs(t, stopped, ErrTooManyFailed)
	all := f.all()
	require.Len(t, all, 2)
	require.Equal(t, "a/1/1 failed broken", fmt.Sprintf("%s/%d/%d %s %s", all[0].Topic, all[0].Partition, all[0].Offset,
		all[0].Class, all[0].Error))
	require.NotEmpty(t, all[1].Error)
}
