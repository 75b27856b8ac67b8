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
