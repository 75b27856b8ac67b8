package publish

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/IBM/sarama"
)

// answerWait bounds each step of a connection to a broker that may be silent.
const answerWait = 5 * time.Second

// answering returns the first broker that answers, in random order. Without topics, sarama asks one
// broker of its list for the producer's ID, again and again, also one that is away. A refused login
// ends the search: the other brokers know the same users.
func answering(brokers []string, sc *sarama.Config) (string, error) {
	one := *sc
	one.Net.DialTimeout = min(one.Net.DialTimeout, answerWait)
	one.Net.ReadTimeout = min(one.Net.ReadTimeout, answerWait)
	one.Net.WriteTimeout = min(one.Net.WriteTimeout, answerWait)
	var errs []error
	for _, i := range rand.Perm(len(brokers)) {
		err := answers(brokers[i], &one)
		if err == nil {
			return brokers[i], nil
		}
		errs = append(errs, err)
		if errors.Is(err, sarama.ErrSASLAuthenticationFailed) {
			break
		}
	}
	return "", errors.Join(errs...)
}

func answers(broker string, sc *sarama.Config) error {
	b := sarama.NewBroker(broker)
	if err := b.Open(sc); err != nil {
		return err
	}
	_, err := b.ApiVersions(&sarama.ApiVersionsRequest{})
	_ = b.Close() // an error means that it is closed
	return err
}
