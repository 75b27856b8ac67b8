// Package matrix runs a consumer for every combination of client, store and payload, and keeps the
// table of docs/combinations.md true.
package matrix
