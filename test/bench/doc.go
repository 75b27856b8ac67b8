// Command bench measures how many events a second a consumer turns into effects, and compares: Idem's ways to handle an
// event, what people write by hand, two libraries, a consumer that does nothing, and the SQL alone. All of them consume
// the same records in the same run on the same machine, one after the other, in rounds.
//
// An effect is counted once per event, whatever was delivered. After each run the effects are compared with the events
// that exist: a row with an effect too many or too few fails, however fast it was.
//
// The rows about the outbox go the other way: from a table to a topic that is empty at first. Afterwards each event must be in the topic
// once, those of an aggregate in their order, and none may be left in the table.
//
// It needs the services of test/services: `make bench`, or
//
//	test/services/services.sh run go -C test/bench run . -rows naive-postgres,idem-ontx -rounds 1
//
// The absolute figures are those of a machine. The ratios between rows of one run are what is wanted, see wanted.go.
package main
