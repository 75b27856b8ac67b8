package deadletters

import (
	"context"
	"slices"

	"github.com/idem-go/idem/internal/kafkalog"
)

// Plan is a preview of a replay.
type Plan struct {
	// Rows are the dead letters that the filter chose, in order, with their verdicts.
	Rows []Row
	// More reports that other dead letters were not judged.
	More bool
	// Counts are the verdicts of Rows.
	Counts map[Verdict]int
	// Scanned counts the records that were read, Matched the dead letters that the filter chooses.
	Scanned, Matched int
	// RetryTopics would get the copies. Missing are those of them that do not exist.
	RetryTopics, Missing []string
}

// Plan asks the stores about the dead letters that f chooses, and returns a preview of a replay
// without a change. A limit of zero or less means all. Plan reads the topic twice, see
// [Queue.Survey].
func (q *Queue) Plan(ctx context.Context, f Filter, dec Decisions, limit int) (*Plan, error) {
	s, err := q.Survey(ctx, f)
	if err != nil {
		return nil, err
	}
	p := &Plan{
		Counts: make(map[Verdict]int), Matched: s.Matched, RetryTopics: s.RetryTopics(q.Group),
	}
	if p.Missing, err = q.missing(p.RetryTopics); err != nil {
		return nil, err
	}
	scanned, err := q.EachJudged(ctx, f, s, dec, func(j *Judged) (bool, error) {
		if limit > 0 && len(p.Rows) == limit {
			p.More = true
			return false, nil
		}
		p.Counts[j.Verdict]++
		p.Rows = append(p.Rows, j.Row())
		return true, nil
	})
	p.Scanned = max(s.Scanned, scanned)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// missing returns those topics that do not exist.
func (q *Queue) missing(topics []string) (missing []string, err error) {
	if len(topics) == 0 {
		return nil, nil
	}
	all, err := kafkalog.Topics(q.Client)
	for _, topic := range topics {
		if _, found := slices.BinarySearch(all, topic); !found {
			missing = append(missing, topic)
		}
	}
	return missing, err
}

// judgeBatch is how many dead letters the stores are asked about at a time.
const judgeBatch = 100

// EachJudged calls yield with each chosen dead letter and its verdict, partition after partition,
// until yield returns false. One round trip asks for many dead letters, so a verdict may be
// slightly old. s and dec are those of [Queue.Judge].
func (q *Queue) EachJudged(
	ctx context.Context, f Filter, s *Survey, dec Decisions, yield func(*Judged) (bool, error),
) (scanned int, err error) {
	var batch []*Found
	flush := func() (bool, error) {
		all, err := q.Judge(ctx, s, dec, batch...)
		batch = batch[:0]
		for i := range all {
			if more, err := yield(&all[i]); err != nil || !more {
				return false, err
			}
		}
		return true, err
	}
	more := true
	scanned, err = q.List(ctx, f, func(l *Found) (bool, error) {
		if batch = append(batch, l); len(batch) < judgeBatch {
			return true, nil
		}
		var err error
		more, err = flush()
		return more, err
	})
	if err == nil && more {
		_, err = flush()
	}
	return scanned, err
}
