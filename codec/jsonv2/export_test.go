package jsonv2

// DecoderOf returns the function of the option, for benchmarks.
var DecoderOf = decoder

// NewDecodeError wraps an error of the decoder, for tests.
func NewDecodeError(err error) error { return &decodeError{err} }
