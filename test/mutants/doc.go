// Command mutants plants faults in the safety-critical code, one at a time, and runs the tests that
// own the code. A test must fail for each fault. A fault that no test finds is a survivor, and the
// command exits with 1, unless the row has a reason why the fault is harmless.
//
//	make mutants                              # all rows; starts the services
//	go run ./test/mutants -list
//	go run ./test/mutants -only lane-watermark-off-by-one
//
// The work tree is never changed: the Go tool reads the mutated copy through -overlay. Before and
// after the faults each group of tests runs once on the unchanged code, and must pass. A fault that
// does not compile, and a row with skipped tests, are errors of the list. A test that runs into the
// time-out refutes its fault, and is counted apart.
//
// docs/decisions/mutants.md has the figures of the last run.
package main
