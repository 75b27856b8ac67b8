package otelidem

import (
	"context"
	"errors"
	"net"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

// errorNames are the errors that have a name of their own in error.type; the first that is found counts.
var errorNames = []struct {
	err  error
	name string
}{
	{idem.ErrPartitionLost, "partition_lost"},
	{idem.ErrStopping, "stopping"},
	{idem.ErrAbandoned, "abandoned"},
	{idem.ErrHandlerTimeout, "timeout"},
	{idem.ErrTooOld, "too_old"},
	{idem.ErrNoProducer, "no_producer"},
	{idem.ErrTooLarge, "too_large"},
	{idem.ErrRefused, "refused"},
	{idem.ErrNoTopic, "no_topic"},
	{idem.ErrNotDue, "not_due"},
	{idem.ErrBusy, "busy"},
	{dedup.ErrClaimLost, "claim_lost"},
	{dedup.ErrUnknownCommit, "unknown_commit"},
	{dedup.ErrContended, "contended"},
	{dedup.ErrTxEnded, "tx_ended"},
	{dedup.ErrTxAborted, "tx_aborted"},
	{dedup.ErrFull, "store_full"},
	{dedup.ErrInFlight, "in_flight"},
	{dedup.ErrUnknownOutcome, "unknown_outcome"},
	{dedup.ErrConflict, "conflict"},
	{dedup.ErrGivenUp, "given_up"},
	{dedup.ErrNoResult, "no_result"},
	{dedup.ErrResult, "result"},
	{dedup.ErrKey, "key"},
	{outbox.ErrEntry, "invalid_entry"},
	{outbox.ErrSameID, "same_id"},
	{outbox.ErrNoParent, "no_parent"},
}

// errorType says in one word from a fixed list what kind of error it is, for the attribute error.type; empty if there is
// none. It never has anything of the error's text.
func errorType(err error) string {
	var p *idem.PanicError
	var some idem.BatchError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &p):
		return "panic"
	case errors.As(err, &some):
		return someType(some)
	}
	for _, n := range errorNames {
		if errors.Is(err, n.err) {
			return n.name
		}
	}
	if mark := idem.ErrorMark(err); mark != "" {
		return mark
	}
	return systemError(err)
}

// someType is what a batch handler says of some of its events; to name none is a success.
func someType(e idem.BatchError) string {
	for _, err := range e {
		if err != nil {
			return "partial"
		}
	}
	return ""
}

// systemError knows what is not ours.
func systemError(err error) string {
	var timeout interface{ Timeout() bool }
	var network net.Error
	var state interface{ SQLState() string }
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.As(err, &network):
		return "network"
	case errors.As(err, &state):
		return sqlType(state.SQLState())
	case errors.Is(err, dedup.ErrUnavailable): // that is how it is told, not why
		return "unavailable"
	}
	return otherLabel
}

// sqlClasses are the classes of SQLSTATE that are told apart.
var sqlClasses = map[string]string{
	"08": "sql_connection", "22": "sql_data", "23": "sql_constraint", "25": "sql_transaction", "28": "sql_authorization",
	"40": "sql_rollback", "42": "sql_statement", "53": "sql_resources", "54": "sql_limit", "55": "sql_state", "57": "sql_shutdown", "58": "sql_system",
}

func sqlType(state string) string {
	if len(state) == 5 {
		if name, ok := sqlClasses[state[:2]]; ok {
			return name
		}
	}
	return "sql"
}

// causeType is errorType of what a call returned. That its context was cancelled says little: the cause says why.
func causeType(ctx context.Context, err error) string {
	name := errorType(err)
	if name != "canceled" && (name != "timeout" || !errors.Is(err, context.DeadlineExceeded)) {
		return name
	}
	if cause := errorType(context.Cause(ctx)); cause != "" && cause != otherLabel {
		return cause
	}
	return name
}

// fail says on a span what kind of error there was, and nothing of its text.
func fail(span trace.Span, err error) { failAs(span, errorType(err)) }

// failAs is fail with the kind. That somebody waits or stops is no failure.
func failAs(span trace.Span, kind string) {
	if kind == "" {
		return
	}
	span.SetAttributes(attribute.String(attrErrorType, kind))
	switch kind {
	case "stopping", "busy", "not_due":
	default:
		span.SetStatus(codes.Error, kind)
	}
}
