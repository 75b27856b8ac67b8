package outbox

import "iter"

// waves yields rows, by their index, so that each wave has at most one row of an aggregate, in the order of Seq over the waves: the next
// row of an aggregate is not given to the producer before the result of this one is known. Rows without a key are all in the first wave.
//
// Why the first appearances of the events of an aggregate are in order, even if two relays publish it at the same time for a moment.
// Call what was acknowledged at some time the set P, and let P be a beginning of the aggregate's rows in the order of Seq, which is the order
// of commits; it is at first, being empty. A relay fetches rows of the aggregate without a gap, beginning at the first one that is not
// settled. All before that one are settled, and a row is settled only after its acknowledgement (O-08): they are in P. It then publishes row
// after row, each only after the acknowledgement of the one before, and nothing more after a failure (O-09). So whenever a row is given to
// a producer, by whichever relay, all before it are in P already: it is in P itself, and appears once more, or is the next one, and P
// stays a beginning. Nothing was said of when: a message that an old relay's producer had in hand for an hour appears with all before it
// in the log. A row that is parked counts as in P, for whoever goes on behind it (under [Skip]), or nobody goes on (under [Halt]); a person
// who has a row tried again that was skipped has chosen another order.
func waves(rows []Row) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		var list [][]int
		depth := map[muteID]int{}
		for i := range rows {
			id := muteIDOf(&rows[i])
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
