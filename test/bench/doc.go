// Command bench measures how many events a second a consumer turns into effects. The rows are
// Idem's ways to handle an event, common code written by hand, two libraries, a consumer that does
// no work, and the SQL alone. All rows of a run consume the same records on the same machine, one
// after the other, in rounds.
//
// An effect counts once per event, for any number of deliveries. After each run the effects are
// compared with the events. A row with an effect too many or too few fails, at any rate.
//
// The rows about the outbox go from a table to an empty topic. Afterwards each event must be in the
// topic once, the events of an aggregate in order, and the table must be empty.
//
// The services of test/services must run: `make bench`, or
//
//	test/services/services.sh run go -C test/bench run . -rows naive-postgres,idem-ontx -rounds 1
//
// The absolute figures depend on the machine. The ratios between the rows of one run are compared
// with the wanted ones, see wanted.go.
package main
