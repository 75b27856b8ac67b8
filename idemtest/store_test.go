package idemtest

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// No method of the store in memory works in an outage, and none is forgotten.
func TestMemory_Down(t *testing.T) {
	store := newMemory()
	store.set(true)
	v, tried := reflect.ValueOf(store), 0
	for i := range v.NumMethod() {
		name, method := v.Type().Method(i).Name, v.Method(i)
		typ := method.Type()
		if name == "Volatile" || typ.NumOut() == 0 || typ.Out(typ.NumOut()-1) != reflect.TypeFor[error]() {
			continue // Volatile describes the store, and asks no server
		}
		tried++
		t.Run(name, func(t *testing.T) {
			in := make([]reflect.Value, typ.NumIn())
			for j := range in {
				in[j] = reflect.Zero(typ.In(j))
			}
			call := method.Call
			if typ.IsVariadic() {
				call = method.CallSlice
			}
			err, _ := call(in)[typ.NumOut()-1].Interface().(error)
			require.ErrorIs(t, err, dedup.ErrUnavailable)
		})
	}
	require.Greater(t, tried, 20)
	store.set(false)
	require.NoError(t, store.Ping(t.Context()))
}
