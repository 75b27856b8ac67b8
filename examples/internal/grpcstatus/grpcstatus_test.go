// Package grpcstatus tests classify.GRPC with the errors of google.golang.org/grpc, which the root
// module does not require.
package grpcstatus

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/classify"
)

func TestGRPC(t *testing.T) {
	want := map[codes.Code]string{
		codes.InvalidArgument: "permanent", codes.OutOfRange: "permanent", codes.DataLoss: "permanent",
		codes.Unavailable: "unavailable",
	}
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		err := fmt.Errorf("charge: %w", status.Error(c, "text"))
		require.Equal(t, want[c], idem.ErrorMark(classify.GRPC(err)), c)
		require.ErrorIs(t, classify.GRPC(err), err)
	}
}
