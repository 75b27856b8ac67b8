package consumer

import (
	"errors"
	"slices"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/runner"
)

// classOf returns the meaning of an error of sarama.
func classOf(err error) runner.Class {
	for _, c := range classes {
		if isAny(err, c.errs...) {
			return c.class
		}
	}
	return runner.Transient
}

// classesWith is classOf for a login. A connection that authenticates again too early is in a wrong
// state (KIP-368), and the next connection is not. Brokers that do not know a new key of the
// authorization server yet refuse its tokens for a moment.
func classesWith(login *SASL) runner.Classify {
	tokens := login != nil && login.Token != nil
	return func(err error) runner.Class {
		class := classOf(err)
		if class == runner.BadLogin && (tokens || errors.Is(err, sarama.ErrIllegalSASLState)) {
			return runner.StaleLogin
		}
		return class
	}
}

// classes has the errors of each class, by precedence.
var classes = []struct {
	class runner.Class
	errs  []error
}{
	{runner.FencedInstance, []error{sarama.ErrFencedInstancedId}},
	{runner.BadLogin, []error{
		sarama.ErrSASLAuthenticationFailed, sarama.ErrUnsupportedSASLMechanism,
		sarama.ErrIllegalSASLState,
	}},
	{runner.DeniedGroup, []error{sarama.ErrGroupAuthorizationFailed}},
	{runner.DeniedTopic, []error{sarama.ErrTopicAuthorizationFailed}},
	{runner.DeniedCluster, []error{sarama.ErrClusterAuthorizationFailed}},
	{runner.Invalid, []error{sarama.ErrInvalidGroupId, sarama.ErrInvalidSessionTimeout}},
	{runner.UnknownMember, []error{sarama.ErrUnknownMemberId}},
	{runner.OldGeneration, []error{sarama.ErrIllegalGeneration, sarama.ErrRebalanceTimedOut}},
	{runner.UnknownGroup, []error{sarama.ErrGroupIDNotFound}},
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
