// Package idemtype has the types that package idem shares with its engine, with package deadletter
// and with package observe. These are messages, retry policies, classes of dead letters, and
// errors.
//
// Package idem has the same types under the same names. Import idemtype only in a package that must
// not import idem.
package idemtype
