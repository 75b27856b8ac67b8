// Package cells has the crash matrix of Idem as a table in code: kinds of handlers, steps, stores
// and faults. A combination is a cell, or the table names the reason why it is none. The test runs
// each cell with worker processes on real servers, and compares the effects with those that the
// table expects.
//
// By default the test runs a share of the cells, which a printed seed selects. The seed is the day,
// or IDEM_CELLS_SEED. With IDEM_CELLS=all the test runs every cell and writes docs/proof.md; it
// restarts the servers then, so these must serve no other test (make cells).
package cells
