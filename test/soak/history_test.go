package soak

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/history"
)

const historyFile = "history-"

// histories are the entries of all worker processes of a line.
type histories struct {
	byEvent [][]history.Entry
	keys    [][]uint64 // by event: the hashes of the idempotency keys of its effects
	settled []int64    // by event: when a worker first knew that it is settled, in Unix nanoseconds
	entries int
}

// read reads the files of the workers. A kill may have cut the last entry of a file.
func read(t *testing.T, dir string, events int) *histories {
	t.Helper()
	h := &histories{
		byEvent: make([][]history.Entry, events), keys: make([][]uint64, events), settled: make([]int64, events),
	}
	for n := range h.settled {
		h.settled[n] = math.MaxInt64
	}
	files, err := filepath.Glob(filepath.Join(dir, historyFile+"*"))
	require.NoError(t, err)
	for _, name := range files {
		text, err := os.ReadFile(filepath.Clean(name))
		require.NoError(t, err)
		h.add(t, filepath.Base(name), bytes.NewReader(text))
	}
	return h
}

func (h *histories) add(t *testing.T, worker string, from io.Reader) {
	t.Helper()
	for {
		var e entry
		if err := binary.Read(from, binary.LittleEndian, &e); err != nil {
			require.True(t, errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF), err)
			return
		}
		h.entries++
		h.byEvent[e.Event] = append(h.byEvent[e.Event], history.Entry{
			From: time.Unix(0, e.From), To: time.Unix(0, e.To), Worker: worker, Deed: e.Deed, Fence: e.Fence,
		})
		if e.Deed == history.Effect {
			h.keys[e.Event] = append(h.keys[e.Event], e.Key)
		}
		if e.Deed == history.Completed || e.Deed == history.Found {
			h.settled[e.Event] = min(h.settled[e.Event], e.To)
		}
	}
}

// effects returns how many effects there are, and of how many events.
func (h *histories) effects() (all, different int) {
	for _, entries := range h.byEvent {
		had := all
		for _, e := range entries {
			if e.Deed == history.Effect {
				all++
			}
		}
		if all > had {
			different++
		}
	}
	return all, different
}

// most bounds the rules that a test prints.
const most = 20

// broken returns the rules of claims that are broken. Each effect of an event has the same
// idempotency key.
func (h *histories) broken(late bool) (rules []string) {
	for n, entries := range h.byEvent {
		broken := history.Broken(entries, late)
		if keys := len(slices.Compact(slices.Sorted(slices.Values(h.keys[n])))); keys > 1 {
			broken = append(broken, fmt.Sprintf("its effects have %d different idempotency keys", keys))
		}
		for _, rule := range broken {
			if len(rules) < most {
				rules = append(rules, fmt.Sprintf("event %d: %s", n, rule))
			}
		}
	}
	return rules
}

// commit is an offset that was found committed.
type commit struct {
	at        time.Time
	partition int
	offset    int64
}

// unfinished returns the commits above an event that was not known to be settled at that time.
// records has the event of each record, by partition and offset.
func (h *histories) unfinished(records [partitions][]uint32, commits []commit) (wrong []string) {
	slices.SortFunc(commits, func(a, b commit) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
	})
	var latest int64 // of the records below next
	partition, next := -1, int64(0)
	for _, c := range commits {
		if c.partition != partition {
			partition, next, latest = c.partition, 0, 0
		}
		for ; next < c.offset; next++ {
			latest = max(latest, h.settled[records[partition][next]])
		}
		if latest > c.at.UnixNano() && len(wrong) < most {
			wrong = append(wrong, fmt.Sprintf("partition %d: offset %d at %s, an event below was settled at %s",
				c.partition, c.offset, c.at.Format(time.StampMicro), time.Unix(0, latest).Format(time.StampMicro)))
		}
	}
	return wrong
}

// watch notes the committed offsets of a group, each as soon as it changes.
type watch struct {
	all  []commit
	stop func()
}

func (g *group) watch() *watch {
	stopped := make(chan struct{})
	var watching sync.WaitGroup
	w := &watch{stop: sync.OnceFunc(func() { close(stopped); watching.Wait() })}
	watching.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for last := ([partitions]int64{}); ; {
			if now, err := g.committed(); err == nil { // else the coordinator moves
				for p, offset := range now {
					if offset != last[p] {
						w.all = append(w.all, commit{time.Now(), p, offset})
					}
				}
				last = now
			}
			select {
			case <-stopped:
				return
			case <-tick.C:
			}
		}
	})
	g.t.Cleanup(w.stop)
	return w
}

// end stops the watch and returns the commits.
func (w *watch) end() []commit {
	w.stop()
	return w.all
}

// The check finds an offset that was committed before an event below it was settled, and an event
// that never was.
func TestUnfinished(t *testing.T) {
	h := &histories{settled: []int64{10, 30, 20, math.MaxInt64}}
	at := func(nanos int64, offset int64) commit { return commit{time.Unix(0, nanos), 0, offset} }
	records := [partitions][]uint32{{0, 1, 2, 3}}
	require.Empty(t, h.unfinished(records, []commit{at(15, 1), at(30, 2), at(35, 3)}))
	for name, commits := range map[string][]commit{
		"too early":            {at(9, 1)},
		"below is unfinished":  {at(15, 1), at(25, 3)},
		"never settled":        {at(1000, 4)},
		"the order of commits": {at(35, 3), at(25, 2)},
	} {
		require.Len(t, h.unfinished(records, commits), 1, name)
	}
}

// An entry that a kill has cut short is left out.
func TestHistories(t *testing.T) {
	var b bytes.Buffer
	for _, e := range []entry{{1, 2, 0, history.Claimed, 1, 0}, {3, 3, 0, history.Effect, 1, 7}, {4, 5, 0, history.Completed, 1, 0}} {
		require.NoError(t, binary.Write(&b, binary.LittleEndian, e))
	}
	dir := t.TempDir()
	put := func(text []byte) *histories {
		require.NoError(t, os.WriteFile(filepath.Join(dir, historyFile+"1"), text, 0o600))
		return read(t, dir, 1)
	}
	h := put(b.Bytes())
	require.Empty(t, h.broken(false))
	require.Equal(t, []int64{5}, h.settled)
	all, different := h.effects()
	require.Equal(t, [2]int{1, 1}, [2]int{all, different})

	h = put(b.Bytes()[:b.Len()-1])
	require.Equal(t, 2, h.entries)
	require.Equal(t, []int64{math.MaxInt64}, h.settled)

	h = put(b.Bytes()[binary.Size(entry{}):]) // the effect without its claim
	require.Contains(t, strings.Join(h.broken(false), "; "), "no claim was granted")
}

// Each effect of an event has the same idempotency key.
func TestHistories_Keys(t *testing.T) {
	for name, c := range map[string]struct {
		second uint64
		rules  []string
	}{
		"the key again": {7, nil},
		"another key":   {8, []string{"event 1: its effects have 2 different idempotency keys"}},
	} {
		var b bytes.Buffer
		require.NoError(t, binary.Write(&b, binary.LittleEndian, []entry{
			{1, 2, 1, history.Claimed, 1, 0}, {3, 3, 1, history.Effect, 1, 7},
			{4, 5, 1, history.Claimed, 2, 0}, {6, 6, 1, history.Effect, 2, c.second},
			{1, 2, 0, history.Claimed, 1, 0}, {3, 3, 0, history.Effect, 1, 5},
		}))
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, historyFile+"1"), b.Bytes(), 0o600))
		require.Equal(t, c.rules, read(t, dir, 2).broken(false), name)
	}
}
