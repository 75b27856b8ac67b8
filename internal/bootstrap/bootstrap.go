// Package bootstrap finds the brokers of a list (Kafka's bootstrap.servers) that answer.
//
// sarama asks the brokers of a list one after the other, in random order, and waits for each until
// a time-out ends. One broker that accepts connections and never answers can use up the time of a
// whole call that way.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/internal/conns"
)

// Found are the brokers of a list, as their first answers show them.
type Found struct {
	// Answered are the brokers that have answered, the first one first.
	Answered []string
	// Usable are those and the ones with an error that costs a client no time. A broker that
	// restarts refuses connections for a moment. Silent brokers and refused logins are left out.
	Usable []string
}

// Limits bound a search.
type Limits struct {
	Answer time.Duration // for the first answer
	Grace  time.Duration // for the other brokers, from the first answer on
}

const clientGrace = time.Second

var (
	errNoBroker = errors.New("the address is not one of a broker: it lists no request for metadata")
	errNotReady = errors.New("the broker knows no brokers of the cluster yet")
	errSilent   = fmt.Errorf("no answer in time: %w", os.ErrDeadlineExceeded)
)

type answer struct {
	broker string
	err    error
}

// Find asks all brokers at once, with the connections, login and time-outs of sc. Find returns when
// one has answered and the grace is over, or all have answered. A broker answers when it accepts
// the login, lists the request for metadata, and knows brokers of the cluster (KIP-700).
//
// A refused login ends the search, unless another broker has answered: most clusters have the same
// users on all brokers. Any other error matches sarama.ErrOutOfBrokers and names each broker with
// its reason. If ctx ends, the error is its cause.
//
// No connection is open after Find. A token provider or a name server that gives no answer holds
// Find up.
func Find(ctx context.Context, brokers []string, sc *sarama.Config, l Limits) (Found, error) {
	brokers = slices.Compact(slices.Sorted(slices.Values(brokers)))
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
	for range len(brokers) - len(got) {
		<-answers
	}
	return judge(brokers, got, context.Cause(ctx))
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

// judge returns the result of a search. ended is the cause of its end by the caller, or nil.
func judge(brokers []string, got []answer, ended error) (found Found, err error) {
	failed := make(map[string]error)
	for _, broker := range brokers {
		failed[broker] = errSilent
	}
	for _, a := range got {
		failed[a.broker] = a.err
		switch {
		case a.err == nil:
			found.Answered = append(found.Answered, a.broker)
			found.Usable = append(found.Usable, a.broker)
		case errors.Is(a.err, sarama.ErrSASLAuthenticationFailed):
			err = fmt.Errorf("broker %s: %w", a.broker, a.err)
		case !isTimeout(a.err):
			found.Usable = append(found.Usable, a.broker)
		}
	}
	switch {
	case len(found.Answered) > 0:
		return found, nil
	case ended != nil:
		return Found{}, ended
	case err != nil:
		return Found{}, err
	}
	var errs []error
	for _, broker := range brokers {
		errs = append(errs, reason(broker, failed[broker]))
	}
	return Found{}, fmt.Errorf("%w: %w", sarama.ErrOutOfBrokers, errors.Join(errs...))
}

func isTimeout(err error) bool {
	var of net.Error
	return errors.As(err, &of) && of.Timeout()
}

// reason names a broker and its error. As in sarama's own search, the code of one broker is not the
// code of all.
func reason(broker string, err error) error {
	var code sarama.KError
	if errors.As(err, &code) {
		return fmt.Errorf("broker %s: %s", broker, err.Error())
	}
	return fmt.Errorf("broker %s: %w", broker, err)
}

// Client returns a client that knows the usable brokers of a list. The first answer may take as
// long as a read of the client. A list of one broker is not searched.
//
// The client learns of the other brokers from the cluster. sarama may then ask any of them, even a
// silent one.
//
// The end of ctx cuts the connections of a client that is not open yet, and the error is its cause.
func Client(ctx context.Context, brokers []string, sc *sarama.Config) (sarama.Client, error) {
	if len(brokers) > 1 {
		limits := Limits{Answer: sc.Net.ReadTimeout, Grace: clientGrace}
		found, err := Find(ctx, brokers, sc, limits)
		if err != nil {
			return nil, err
		}
		brokers = found.Usable
	}
	own := conns.New(sc)
	uncut := context.AfterFunc(ctx, own.Cut)
	client, err := sarama.NewClient(brokers, own.Config(sc))
	if uncut() {
		return client, err
	}
	if err == nil {
		_ = client.Close() // it has only read
	}
	return nil, context.Cause(ctx)
}

// The keys of requests, as a broker lists them.
const (
	metadata        = 3
	describeCluster = 60 // since Kafka 2.8
)

// ask returns nil if a broker answers. The settings for Kerberos choose how a client of sarama
// resolves the name of the broker. Its metrics are its own, because its end would remove those of
// others.
func ask(broker string, sc *sarama.Config) error {
	one := *sc // sarama may change its settings
	one.MetricRegistry = sarama.NewConfig().MetricRegistry
	client, err := sarama.NewClient([]string{broker}, &one)
	if err != nil {
		return err
	}
	defer client.Close() // the answer is known
	b := client.LeastLoadedBroker()
	if !one.ApiVersionsRequest {
		_, err := b.Connected()
		return err
	}
	list, err := b.ApiVersions(&sarama.ApiVersionsRequest{})
	switch {
	case err != nil:
		return err
	case list.ErrorCode != 0: // a proxy that knows later forms of the request only
		return nil
	case !lists(list, metadata): // a controller
		return errNoBroker
	case !lists(list, describeCluster), !one.Version.IsAtLeast(sarama.V2_8_0_0):
		return nil
	}
	cluster, err := b.DescribeCluster(&sarama.DescribeClusterRequest{})
	switch {
	case err != nil:
		return err
	case !errors.Is(cluster.Err, sarama.ErrNoError):
		return nil // a client asks for topics, which may be another right
	case len(cluster.Brokers) == 0: // it has just started (KAFKA-7924)
		return errNotReady
	}
	return nil
}

func lists(list *sarama.ApiVersionsResponse, key int16) bool {
	return slices.ContainsFunc(list.ApiKeys, func(k sarama.ApiVersionsResponseKey) bool {
		return k.ApiKey == key
	})
}
