// Package archtest holds the tests that keep the shape of the project: who may import whom, how large a file may be, what must
// be documented. It contains no other code.
package archtest
