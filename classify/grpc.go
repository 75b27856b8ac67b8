package classify

import (
	"reflect"

	"github.com/idem-go/idem/internal/mark"
)

// GRPC marks errors by the status code of a gRPC call. The code comes from the method GRPCStatus()
// of the errors of google.golang.org/grpc. The method is called by reflection, so that this package
// does not need that module.
//
//	code                                                        mark
//	Unavailable                                                 Unavailable
//	InvalidArgument, OutOfRange, DataLoss                       Permanent
//	others, such as DeadlineExceeded, NotFound, Aborted,        none
//	PermissionDenied, ResourceExhausted, Unauthenticated
func GRPC(err error) error {
	if err == nil {
		return nil
	}
	found := unsure
	anyOf(err, func(err error) bool {
		code, ok := grpcCode(err)
		found = ofGRPC(code)
		return ok
	})
	switch found {
	case down:
		return mark.New(mark.Unavailable, 0, err)
	case hopeless:
		return mark.New(mark.Permanent, 0, err)
	case unsure:
	}
	return err
}

// ofGRPC returns the meaning of a code of gRPC. The numbers are part of the protocol.
func ofGRPC(code uint64) meaning {
	const invalidArgument, outOfRange, unavailable, dataLoss = 3, 11, 14, 15
	switch code {
	case unavailable:
		return down
	case invalidArgument, outOfRange, dataLoss:
		return hopeless
	}
	return unsure
}

// grpcCode returns the code of err itself, if err has a status of gRPC.
func grpcCode(err error) (code uint64, ok bool) {
	status, ok := result(reflect.ValueOf(err).MethodByName("GRPCStatus"))
	if !ok {
		return 0, false
	}
	value, ok := result(status.MethodByName("Code"))
	if !ok || !value.CanUint() {
		return 0, false
	}
	return value.Uint(), true
}

// result calls a method without arguments that has one result.
func result(method reflect.Value) (value reflect.Value, ok bool) {
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return reflect.Value{}, false
	}
	return method.Call(nil)[0], true
}
