package publish

import (
	"errors"
	"time"

	"github.com/IBM/sarama"
)

// Configure sets the producer's settings: all in-sync replicas acknowledge, and retries neither
// double nor reorder records (K-35).
func Configure(sc *sarama.Config) {
	p := &sc.Producer
	p.RequiredAcks = sarama.WaitForAll
	p.Idempotent = true
	p.Retry.Max = 10
	p.Return.Successes = true
	p.Return.Errors = true
	p.MaxMessageBytes = 64 << 20 // the broker decides which record is too large
	// as Kafka's Java client, so that a key has one partition
	p.Partitioner = sarama.NewMurmur2Partitioner
	p.Timeout = 10 * time.Second
}

// The settings of a producer that stands alone. No group session depends on the metadata. So the
// producer asks for a missing topic less often than a consumer, and reports the missing topic
// sooner. The retries outlast the election of a leader.
const (
	aloneAsks     = 3 // beside the first
	aloneAskPause = 100 * time.Millisecond
	aloneRetries  = 20
	alonePause    = 100 * time.Millisecond
	aloneMaxPause = time.Second
	// more than Producer.Timeout, for which brokers wait for replicas
	aloneReadLimit = 15 * time.Second
)

// ConfigureAlone changes the settings for a producer with a client of its own. Call ConfigureAlone
// after [Configure].
func ConfigureAlone(sc *sarama.Config) {
	sc.Net.ReadTimeout = aloneReadLimit
	sc.Metadata.Full = false // only the topics it publishes to
	sc.Metadata.Retry.Max, sc.Metadata.Retry.Backoff = aloneAsks, aloneAskPause
	sc.Producer.Retry.Max, sc.Producer.Retry.BackoffFunc = aloneRetries, aloneBackoff
}

// aloneBackoff returns the pause before another attempt.
func aloneBackoff(retries, _ int) time.Duration {
	return min(aloneMaxPause, alonePause*time.Duration(max(retries, 1)))
}

// Check returns an error for each setting that could lose an acknowledged record or hide a result.
func Check(sc *sarama.Config) (problems []error) {
	if sc.Producer.RequiredAcks != sarama.WaitForAll {
		problems = append(problems, errors.New("sarama: Producer.RequiredAcks must be WaitForAll: "+
			"otherwise a dead letter is lost with its leader"))
	}
	if !sc.Producer.Return.Successes || !sc.Producer.Return.Errors {
		problems = append(problems, errors.New(
			"sarama: Producer.Return.Successes and .Errors must be true: "+
				"otherwise the result of a dead letter is unknown"))
	}
	return problems
}
