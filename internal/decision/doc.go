// Package decision decides the answers and the writes of stores. The functions are pure: they know
// a record, a request and the time of the store's clock, and no database. A store reads a record,
// calls one method, and writes the record back. group.go has the errors of a group whose handler
// may have ended its transaction.
package decision
