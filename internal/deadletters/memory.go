package deadletters

import (
	"strconv"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// This file lets the first store remember dead letters without a record of their event. These are
// dead letters without identity, and events that were published again and failed before a claim.

// memoryType is the event type of these records.
const memoryType = "idem.letter"

// deadLetterMemory is the retention of these records, longer than that of dead letters.
const deadLetterMemory = 5 * 365 * 24 * time.Hour

func memoryKey(scope string, parts ...string) dedup.Key {
	key := dedup.Key{Scope: scope, Type: memoryType, ID: dedup.Join(parts...)}
	if len(key.ID) > dedup.MaxPart {
		key.ID = dedup.Hash(parts...)
	}
	return key
}

func originParts(l *deadletter.Event) []string {
	return []string{
		l.Message.Topic, strconv.Itoa(int(l.Message.Partition)),
		strconv.FormatInt(l.Message.Offset, 10),
	}
}

// deadLetterKey is the key of a dead letter without identity that was published again (T-10): the
// place of the record and the time of the failure. Without the time, a dead letter that came back
// would count as replayed and would be purged.
func deadLetterKey(scope string, l *deadletter.Event) dedup.Key {
	return memoryKey(
		scope,
		append(originParts(l), strconv.FormatInt(l.LastFailure.UnixMilli(), 10))...)
}

// replayKeys are the keys that count how often a record was published again without being reopened,
// up to [MaxGenerations]. They contain the time of the failure, so that a repeated replay counts
// once.
func replayKeys(scope string, l *deadletter.Event) (keys [MaxGenerations]dedup.Key) {
	for i := range keys {
		keys[i] = memoryKey(scope, append(originParts(l), "replay", strconv.Itoa(i+1))...)
	}
	return keys
}

// discardKey is the key of a record that a person has discarded. It contains the place of the
// record, which no header can forge.
func (q *Queue) discardKey(at Place) dedup.Key {
	return memoryKey(
		q.Scope, "discarded", "record", q.Topic, strconv.Itoa(int(at.Partition)),
		strconv.FormatInt(at.Offset, 10),
	)
}
