package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// seen remembers the servers that the last check has found.
type seen struct {
	mu   sync.Mutex
	last *servers // nil: no check yet
}

// replace returns the servers that the check before has found.
func (s *seen) replace(found servers) (last *servers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, s.last = s.last, &found
	return last
}

// Watch implements [dedup.Watcher] with the commands of [Store.Check]. Watch warns
//
//   - if another server answers than before: a server was started again, failed over to, or
//     restored (rule 50). With a cluster, one server must be gone, and another one be new
//   - of each setting that Check would now refuse or warn of, and did not before
//
// A server has another run_id after each start. A user without the right to INFO gets no warning
// of another server.
func (s *Store) Watch(ctx context.Context) (warnings []string, err error) {
	found, err := s.checkServers(ctx)
	switch {
	case err == nil:
	case errors.Is(err, errUnfit):
		found.warnings = append(found.warnings, err.Error())
	case errors.Is(err, errClient):
		return nil, err
	default:
		return nil, s.unavailable(ctx, "watch", err)
	}
	if last := s.seen.replace(found); last != nil {
		return found.since(*last), nil
	}
	return found.warnings, nil
}

// since returns the warnings about changes since last. A server more, or a server less, is no
// change: a cluster may grow.
func (f servers) since(last servers) (warnings []string) {
	gone, came := without(last.lives, f.lives), without(f.lives, last.lives)
	if len(gone) > 0 && len(came) > 0 {
		warnings = append(warnings, fmt.Sprintf("redis: another server answers than before: run_id %s, "+
			"before %s. It was started again, failed over to, or restored, and may lack the last "+
			"records. Their events run again if they are delivered again. Claims of a restored "+
			"snapshot are uncertain after their lease",
			strings.Join(came, " "), strings.Join(gone, " ")))
	}
	return append(warnings, without(f.warnings, last.warnings)...)
}

// without returns the elements of all that are not in known.
func without(all, known []string) (rest []string) {
	for _, one := range all {
		if !slices.Contains(known, one) {
			rest = append(rest, one)
		}
	}
	return rest
}
