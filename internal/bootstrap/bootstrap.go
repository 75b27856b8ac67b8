// Package bootstrap finds the brokers of a list (Kafka's bootstrap.servers) that answer.
//
// sarama asks the brokers of a list one after the other, in random order, and waits for each as
// long as its time-outs say. One broker that accepts connections and never answers can use up the
// time of a whole call that way.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/internal/conns"
)

// Found are the brokers of a list, as their first answers show them.
type Found struct {
	// First is the broker that has answered first.
	First string
	// Usable are all brokers that are not silent: First, those that answered within the grace, and
	// those with an error, such as a refused connection, which costs a client no time.
	Usable []string
}

// Limits bound a search.
type Limits struct {
	Answer time.Duration // for the first answer
	Grace  time.Duration // for the other brokers, from the first answer on
}

const clientGrace = time.Second

type answer struct {
	broker string
	err    error
}

// Find asks all brokers at once, with the connections, login and time-outs of sc. Find returns when
// one has answered and the grace is over, or all have answered. A broker answers when it accepts
// the login and says which requests it knows (ApiVersions).
//
// The error matches sarama.ErrOutOfBrokers, and names each broker and its reason. That of a silent
// broker matches [os.ErrDeadlineExceeded]. A refused login ends the search: the other brokers know the same users.
// If ctx ends, the error is its cause. No connection is open after Find.
func Find(ctx context.Context, brokers []string, sc *sarama.Config, l Limits) (Found, error) {
	if len(brokers) == 0 {
		return Found{}, sarama.ErrOutOfBrokers
	}
	own := conns.New(sc)
	sc = own.Config(sc)
	sc.Metadata.Full, sc.Metadata.Retry.Max = false, 0
	answers := make(chan answer, len(brokers))
	for _, broker := range brokers {
		go func() { answers <- answer{broker, ask(broker, sc)} }()
	}
	got := collect(ctx, answers, len(brokers), l)
	own.Cut()
	for range len(brokers) - len(got) { // no question outlasts its connection
		<-answers
	}
	return judge(brokers, got, l.Answer, context.Cause(ctx))
}

// collect returns the answers until the search is over.
func collect(ctx context.Context, answers <-chan answer, asked int, l Limits) (got []answer) {
	over := time.NewTimer(l.Answer)
	defer over.Stop()
	for answered := false; len(got) < asked; {
		select {
		case <-ctx.Done():
			return got
		case <-over.C:
			return got
		case a := <-answers:
			got = append(got, a)
			switch {
			case answered:
			case a.err == nil:
				answered = true
				over.Reset(l.Grace)
			case errors.Is(a.err, sarama.ErrSASLAuthenticationFailed):
				return got
			}
		}
	}
	return got
}

// judge returns the result of a search. cause is that of its end by the caller, or nil.
func judge(brokers []string, got []answer, limit time.Duration, cause error) (Found, error) {
	var found Found
	var errs []error
	for _, a := range got {
		found.Usable = append(found.Usable, a.broker)
		switch {
		case a.err != nil:
			a.err = fmt.Errorf("broker %s: %w", a.broker, a.err)
			if errors.Is(a.err, sarama.ErrSASLAuthenticationFailed) {
				cause = a.err
			}
			errs = append(errs, a.err)
		case found.First == "":
			found.First = a.broker
		}
	}
	switch {
	case found.First != "":
		return found, nil
	case cause != nil:
		return Found{}, cause
	}
	for _, broker := range brokers {
		if !slices.Contains(found.Usable, broker) {
			errs = append(errs, fmt.Errorf(
				"broker %s: no answer within %s: %w", broker, limit, os.ErrDeadlineExceeded))
		}
	}
	return Found{}, fmt.Errorf("%w: %w", sarama.ErrOutOfBrokers, errors.Join(errs...))
}

// Client returns a client that knows the usable brokers of a list. The first answer may take as long
// as a read of the client. A list of one broker is not searched.
func Client(ctx context.Context, brokers []string, sc *sarama.Config) (sarama.Client, error) {
	if len(brokers) > 1 {
		limits := Limits{Answer: sc.Net.ReadTimeout, Grace: clientGrace}
		found, err := Find(ctx, brokers, sc, limits)
		if err != nil {
			return nil, err
		}
		brokers = found.Usable
	}
	return sarama.NewClient(brokers, sc)
}

// ask returns nil if a broker answers. A client of sarama resolves the name of the broker as its
// settings for Kerberos say.
func ask(broker string, sc *sarama.Config) error {
	one := *sc // sarama may change its settings
	client, err := sarama.NewClient([]string{broker}, &one)
	if err != nil {
		return err
	}
	_, err = client.LeastLoadedBroker().ApiVersions(&sarama.ApiVersionsRequest{})
	_ = client.Close() // the answer is known
	return err
}
