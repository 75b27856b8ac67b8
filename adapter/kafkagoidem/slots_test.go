package kafkagoidem

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSlots_OneRequestAtATime: calls that ran out of time leave one request behind. The next one
// begins at its end. Other partitions do not wait.
func TestSlots_OneRequestAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots()
		first, second := partition{Topic: "a"}, partition{Topic: "a", Partition: 1}
		began := time.Now()
		var requests atomic.Int32
		slow := func() error {
			requests.Add(1)
			time.Sleep(10 * time.Second)
			return nil
		}
		for range 20 {
			require.ErrorIs(t, sendWithin(t, s, 200*time.Millisecond, first, slow), context.DeadlineExceeded)
		}
		require.EqualValues(t, 1, requests.Load())
		require.NoError(t, sendWithin(t, s, time.Millisecond, second, func() error { return nil }))
		require.ErrorIs(t, sendWithin(t, s, time.Minute, first, func() error { return errTest }), errTest)
		require.Equal(t, 10*time.Second, time.Since(began))
	})
}

// TestSlots_NoTime: a call whose time is over sends no request, also if the slot is free.
func TestSlots_NoTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := newSlots()
	var requests atomic.Int32
	for range 100 { // a select takes any ready case
		require.ErrorIs(t, s.send(ctx, partition{}, func() error {
			requests.Add(1)
			return nil
		}), context.Canceled)
	}
	s.close()
	require.Zero(t, requests.Load())
}

// TestSlots_Close_K38: close waits for the requests in flight. Calls that wait for a slot end at
// once.
func TestSlots_Close_K38(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots()
		began := time.Now()
		slow := func() error {
			time.Sleep(10 * time.Second)
			return nil
		}
		require.Error(t, sendWithin(t, s, time.Second, partition{Topic: "a"}, slow))
		require.Error(t, sendWithin(t, s, time.Second, partition{Topic: "b"}, slow))
		waiting := make(chan error, 1)
		go func() {
			err := sendWithin(t, s, time.Hour, partition{Topic: "a"}, slow)
			assert.Equal(t, 2*time.Second, time.Since(began))
			waiting <- err
		}()
		synctest.Wait()
		s.close()
		require.Equal(t, 11*time.Second, time.Since(began)) // the request to b began after 1 s
		require.ErrorIs(t, <-waiting, errClosed)
		_, err := s.enter()
		require.ErrorIs(t, err, errClosed)
		s.close()
	})
}

// sendWithin makes a call with one request.
func sendWithin(
	t *testing.T, s *slots, limit time.Duration, p partition, request func() error,
) error {
	t.Helper()
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return s.send(ctx, p, request)
}
