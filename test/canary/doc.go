// Package canary sends secrets through everything that Idem does, and looks for them in everything that it writes: logs, the
// headers of dead letters, stores, and what instruments measure (G-04). It has tests only.
package canary
