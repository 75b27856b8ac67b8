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

// errorNames are the errors with their own value of error.type. The first match counts.
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
	{dedup.ErrSealed, "sealed"},
	{dedup.ErrKey, "key"},
	{outbox.ErrEntry, "invalid_entry"},
	{outbox.ErrSameID, "same_id"},
	{outbox.ErrNoParent, "no_parent"},
}

// errorType returns the kind of an error as one word from a fixed list, for the attribute
// error.type; empty for nil. The word never contains text of the error.
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

// someType returns the kind of a batch handler's error. Without a failed event it is a success.
func someType(e idem.BatchError) string {
	for _, err := range e {
		if err != nil {
			return "partial"
		}
	}
	return ""
}

// systemError returns the kind of an error of another library.
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
	case errors.Is(err, dedup.ErrUnavailable): // the wrapper of store errors, without the cause
		return "unavailable"
	}
	return otherLabel
}

// sqlClasses are the named classes of SQLSTATE.
var sqlClasses = map[string]string{
	"08": "sql_connection", "22": "sql_data", "23": "sql_constraint", "25": "sql_transaction",
	"28": "sql_authorization",
	"40": "sql_rollback", "42": "sql_statement", "53": "sql_resources", "54": "sql_limit",
	"55": "sql_state", "57": "sql_shutdown", "58": "sql_system",
}

func sqlType(state string) string {
	if len(state) == 5 {
		if name, ok := sqlClasses[state[:2]]; ok {
			return name
		}
	}
	return "sql"
}

// causeType is errorType for the error of a call. For a context that was cancelled, the cause is
// more precise.
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

// fail sets the kind of an error on a span, without its text.
func fail(span trace.Span, err error) { failAs(span, errorType(err)) }

// failAs is fail with the kind. Waiting and stopping are not failures.
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
