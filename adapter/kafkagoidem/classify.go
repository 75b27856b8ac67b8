package kafkagoidem

import (
	"errors"
	"slices"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/idem-go/idem/kafkaauth"
	"github.com/idem-go/idem/runner"
)

// classes has the errors of each class.
var classes = []struct {
	class runner.Class
	errs  []error
}{
	{runner.UnknownMember, []error{kafka.UnknownMemberId}},
	{runner.OldGeneration, []error{kafka.IllegalGeneration}},
	{runner.FencedInstance, []error{kafka.FencedInstanceID}},
	{runner.DeniedTopic, []error{kafka.TopicAuthorizationFailed}},
	{runner.DeniedGroup, []error{kafka.GroupAuthorizationFailed}},
	{runner.DeniedCluster, []error{kafka.ClusterAuthorizationFailed}},
	{runner.BadLogin, []error{
		kafka.SASLAuthenticationFailed, kafka.UnsupportedSASLMechanism, kafka.IllegalSASLState,
		kafkaauth.ErrRefused,
	}},
	{runner.Invalid, []error{kafka.InvalidGroupId, kafka.InvalidSessionTimeout}},
	{runner.UnknownGroup, []error{kafka.GroupIdNotFound}},
}

// classify returns the class of an error of kafka-go.
func classify(err error) runner.Class {
	for _, c := range classes {
		if isAny(err, c.errs...) {
			return c.class
		}
	}
	return runner.Transient
}

// classifyWith is classify for a mechanism, which may be nil. A wrong state is that of a connection,
// and the next one may be right. Brokers that do not know a new key of the authorization server yet
// refuse its tokens for a moment.
func classifyWith(mechanism sasl.Mechanism) runner.Classify {
	tokens := mechanism != nil && mechanism.Name() == "OAUTHBEARER"
	return func(err error) runner.Class {
		class := classify(err)
		if class == runner.BadLogin && (tokens || isAny(err, kafka.IllegalSASLState)) {
			return runner.StaleLogin
		}
		return class
	}
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
