package deadletters

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// This file says what the first store remembers of dead letters themselves. The store knows events by their keys, and a dead letter may
// have none; the store also knows nothing of an event that was published again and failed before it was claimed.

// memoryType is the event type of these records.
const memoryType = "idem.letter"

// letterMemory is how long they are kept: longer than dead letters are.
const deadLetterMemory = 5 * 365 * 24 * time.Hour

func memoryKey(scope string, parts ...string) dedup.Key {
	key := dedup.Key{Scope: scope, Type: memoryType, ID: dedup.Join(parts...)}
	if len(key.ID) > dedup.MaxPart {
		key.ID = dedup.Hash(parts...)
	}
	return key
}

func originParts(l *deadletter.Event) []string {
	return []string{l.Message.Topic, strconv.Itoa(int(l.Message.Partition)), strconv.FormatInt(l.Message.Offset, 10)}
}

// letterKey is by which the store remembers that a dead letter without identity was published again (T-10): where its record came from, and
// when it failed. Without the time, a dead letter that came back because its handler was not mended yet would count as replayed, never be
// replayed again, and be purged.
func deadLetterKey(scope string, l *deadletter.Event) dedup.Key {
	return memoryKey(scope, append(originParts(l), strconv.FormatInt(l.LastFailure.UnixMilli(), 10))...)
}

// replayKeys are by which the store counts how often a record was published again without being reopened: one key for each time, up to
// [MaxGenerations]. The time of failure of the dead letter is kept with it, so that a replay that is repeated counts once.
func replayKeys(scope string, l *deadletter.Event) (keys [MaxGenerations]dedup.Key) {
	for i := range keys {
		keys[i] = memoryKey(scope, append(originParts(l), "replay", strconv.Itoa(i+1))...)
	}
	return keys
}

// discardKey is by which the store remembers that a person has discarded a record of the dead-letter topic. It names the place of the
// record, which no header can forge.
func (q *Queue) discardKey(at Place) dedup.Key {
	return memoryKey(q.Scope, "discarded", "record", q.Topic, strconv.Itoa(int(at.Partition)), strconv.FormatInt(at.Offset, 10))
}

// replays is how often a record was published again without being reopened, and the key for one more, if that is not counted yet.
func (q *Queue) replays(l *Found, found map[dedup.Key][]known) (times int, next dedup.Key) {
	for _, key := range replayKeys(q.Scope, l.DeadLetter) {
		records := found[key]
		if len(records) == 0 {
			return times, key
		}
		if records[0].First.Time.UnixMilli() == l.DeadLetter.LastFailure.UnixMilli() {
			return times, dedup.Key{} // this dead letter was counted before
		}
		times++
	}
	return times, dedup.Key{}
}

// remember notes that a dead letter was published again without being reopened.
func (r *replayer) remember(ctx context.Context, j *Judged) error {
	m := j.DeadLetter.Message
	note := dedup.Imported{
		Retention: deadLetterMemory, Origin: dedup.Origin{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Time: m.Time},
	}
	var notes []dedup.Imported
	if j.Action == ActRecord {
		note.Key = deadLetterKey(r.q.Scope, j.DeadLetter)
		notes = append(notes, note)
	}
	if j.count != (dedup.Key{}) {
		note.Key, note.Origin.Time = j.count, j.DeadLetter.LastFailure
		notes = append(notes, note)
	}
	if len(notes) == 0 {
		return nil
	}
	l := &r.q.Stores[0]
	if _, err := l.Operator().Import(ctx, notes); err != nil {
		return fmt.Errorf("%s: %w", l.Name, err)
	}
	return nil
}
