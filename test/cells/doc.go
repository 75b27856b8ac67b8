// Package cells has the crash matrix of Idem as a table in code: kinds of handlers and the relay of
// an outbox, steps, stores and faults. A combination is a cell, or the table names the reason why
// it is no cell. The test runs each cell with worker processes on real servers, and compares the
// effects with those that the table expects.
//
// By default the test runs a share of the cells, which a printed seed selects. The seed is the day,
// or IDEM_CELLS_SEED. IDEM_CELLS may be a pattern: cells with such names run, such as
// "^OnTx/pgstore/kill". IDEM_CELLS_UPDATE puts their outcomes into docs/proof.md. With
// IDEM_CELLS=all every cell runs, and the test writes docs/proof.md. Cells that restart a server
// need IDEM_CELLS_RESTART, and servers that no other test uses (make cells). The share has no such
// cells.
package cells
