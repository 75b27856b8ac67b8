// Package canary sends secrets through all parts of Idem, and looks for them in all output: logs,
// the headers of dead letters, stores, and measurements of instruments (G-04). It has tests only.
package canary
