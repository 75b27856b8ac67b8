package kafkagoidem

import (
	"github.com/idem-go/idem/runner"
)

// begin decides where the partitions of a session begin, and waits for brokers and stores that are
// down. The session may end meanwhile.
func (r *Runner) begin(s *session) (map[partition]runner.Place, error) {
	committed, claims := make(map[partition]int64), make(map[string][]int32)
	for topic, assigned := range s.gen.Assignments {
		for _, a := range assigned {
			id := int32(a.ID) //nolint:gosec // from an int32
			claims[topic] = append(claims[topic], id)
			if a.Offset >= 0 {
				committed[partition{Topic: topic, Partition: id}] = a.Offset
			}
		}
	}
	var back runner.Backoff
	for {
		places, err := r.life.Places(s.ctx, claims, committed)
		if err == nil {
			return places, nil
		}
		if err := r.life.Retry.Wait(s.ctx, &back, err); err != nil {
			return nil, err
		}
	}
}
