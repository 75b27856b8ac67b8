package publish

import (
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// resends notes the attempts that sarama makes beyond the first one. sarama does not report them
// with a result. Before each of them sarama pauses, and looks up the leader of the partition. The
// leader is looked up before the first batch for a partition too. Safe for concurrent use.
type resends struct {
	mu     sync.Mutex
	moment uint64               // counts pauses and look-ups
	pause  uint64               // the moment of the last pause
	lookUp map[partition]uint64 // the moment of the last look-up
}

// now returns the present moment.
func (r *resends) now() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.moment
}

// paused notes a pause.
func (r *resends) paused() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moment++
	r.pause = r.moment
}

// lookedUp notes that the leader of a partition is looked up.
func (r *resends) lookedUp(at partition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moment++
	if r.lookUp == nil {
		r.lookUp = map[partition]uint64{}
	}
	r.lookUp[at] = r.moment
}

// since reports whether a batch for a partition may have been sent more than once after a moment.
func (r *resends) since(moment uint64, at partition) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pause > moment && r.lookUp[at] > moment
}

// watched is the client of sarama's producer. It notes attempts.
type watched struct {
	sarama.Client
	conf *sarama.Config
	seen *resends
}

// watch returns a client for sarama's producer. The settings of client stay as they are.
func watch(client sarama.Client, seen *resends) *watched {
	conf := *client.Config()
	retry := client.Config().Producer.Retry
	conf.Producer.Retry.BackoffFunc = func(retries, most int) time.Duration {
		seen.paused()
		if retry.BackoffFunc != nil {
			return retry.BackoffFunc(retries, most)
		}
		return retry.Backoff
	}
	return &watched{client, &conf, seen}
}

// Config implements sarama.Client.
func (w *watched) Config() *sarama.Config { return w.conf }

// Leader implements sarama.Client.
func (w *watched) Leader(topic string, id int32) (*sarama.Broker, error) {
	w.seen.lookedUp(partition{topic, id})
	return w.Client.Leader(topic, id)
}
