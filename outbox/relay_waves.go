package outbox

import "iter"

// waves yields the rows with the indexes at, as waves of indexes. Each wave has at most one row of
// an aggregate, in the order of Seq over the waves. The producer thus gets the next row of an
// aggregate after the result of this one. All rows without a key are in the first wave.
//
// Why the first appearances of the events of an aggregate are in order, even while two relays
// publish the aggregate at the same time:
//
//   - Let P be the set of rows that the broker has acknowledged at some time. Claim: P is a prefix
//     of the aggregate's rows in the order of Seq, which is the order of commits. At first P is
//     empty, and the claim holds.
//   - A relay fetches the rows of the aggregate without a gap, from the first row that is not
//     settled. All rows before that one are settled, and a row is settled only after its
//     acknowledgement (O-08). So they are in P.
//   - The relay then publishes the rows in order. In a wave, a row follows the acknowledgement of
//     the one before. With an [OrderedProducer], a row is in the log only behind the rows before
//     it. No row follows a failure (O-09).
//   - So all rows before a row that appears in the log are in P, or appear just before it. The row
//     itself is in P too, and appears once more, or is the next one. P stays a prefix.
//   - The argument does not use time. A message that the producer of an old relay has delayed for
//     an hour appears with all rows before it in the log.
//   - A parked row counts as in P for a relay that goes on behind it (Skip). With Halt no relay
//     goes on. A person who retries a row after later rows went on has chosen another order.
func waves(rows []Row, at []int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		var list [][]int
		depth := map[aggregateID]int{}
		for _, i := range at {
			id := aggregateOf(&rows[i])
			wave := depth[id]
			depth[id]++
			if wave == len(list) {
				list = append(list, nil)
			}
			list[wave] = append(list[wave], i)
		}
		for _, wave := range list {
			if !yield(wave) {
				return
			}
		}
	}
}
