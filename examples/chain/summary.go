package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// summary is the result of a run. All figures are measured, except asked and processes, which are
// the expected numbers.
type summary struct {
	found
	asked     int // payments
	answered  int // answered payments
	requests  int // sent requests
	impatient int // requests sent although no request had failed
	replays   int // answers stored by an earlier request
	wrong     []string

	orders, notifier map[string]int // counts of the workers
	processes, kills int
	lanes            []int // partitions of each killed notifier

	again   int  // deliveries skipped after the rewind
	changed bool // the rewind has changed an end

	events []string
	seed   uint64
	hung   error
	took   time.Duration
}

// window returns the number of notifications that may have gone out twice: one in flight in each
// lane of each killed notifier.
func (s *summary) window() (n int) {
	for _, l := range s.lanes {
		n += l
	}
	return n
}

func (s *summary) repeats() int { return s.sent - s.notified }

// problems lists the violations of the guarantees.
func (s *summary) problems() (list []string) {
	add := func(bad bool, format string, args ...any) {
		if bad {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	add(s.hung != nil, "%v", s.hung)
	add(s.answered != s.asked, "%d of %d payments answered", s.answered, s.asked)
	add(len(s.wrong) > 0, "clients saw: %s", strings.Join(s.wrong, ", "))
	add(s.payments != s.asked, "%d payments in the table for %d that were asked for", s.payments,
		s.asked)
	add(s.charges != s.payments || s.charged != s.payments,
		"%d charges, for %d payments, at the provider, and %d in the table",
		s.charges, s.charged, s.payments)
	add(s.ordersPaid != s.payments, "%d orders paid by %d payments", s.ordersPaid, s.payments)
	add(s.effects != s.ordersPaid, "%d effects on %d orders", s.effects, s.ordersPaid)
	add(s.notified != s.ordersPaid, "%d customers notified of %d orders", s.notified, s.ordersPaid)
	add(s.lost > 0, "%d lost", s.lost)
	add(s.matched != s.payments,
		"%d of %d payments have their charge, their order and their notification",
		s.matched, s.payments)
	add(s.strangers > 0, "%d notifications that no payment explains", s.strangers)
	add(s.repeats() > s.window(), "%d repeats, more than the %d that the kills explain",
		s.repeats(), s.window())
	add(s.mixups > 0, "%d repeats under another event ID or idempotency key", s.mixups)
	add(s.paymentIDs != s.payments, "%d different payment.completed for %d payments", s.paymentIDs,
		s.payments)
	add(s.orderIDs != s.ordersPaid, "%d different order.paid for %d orders", s.orderIDs,
		s.ordersPaid)
	add(s.foreignIDs > 0, "%d events whose IDs do not derive from their cause", s.foreignIDs)
	add(s.waiting > 0, "%d events have not left", s.waiting)
	add(s.deadLetters > 0, "%d dead letters", s.deadLetters)
	add(s.kills != s.processes, "%d of %d processes were killed", s.kills, s.processes)
	add(s.again < s.paymentRecords+s.orderRecords,
		"%d of %d records were met again after the rewind", s.again,
		s.paymentRecords+s.orderRecords)
	add(s.changed, "the rewind has changed something")
	return list
}

// print writes the table and the verdict.
func (s *summary) print(out io.Writer) {
	row := func(name string, n int, format string, args ...any) {
		fmt.Fprintf(out, "  %-18s %6d   %s\n", name, n, fmt.Sprintf(format, args...))
	}
	fmt.Fprintln(out)
	row("payments", s.payments, "rows; %d were asked for, and %d answered", s.asked, s.answered)
	row("charges", s.charges, "at the provider, for %d different payments", s.charged)
	row("orders paid", s.ordersPaid, "by %d runs of the handler that were committed", s.effects)
	row("notifications", s.notified, "different orders whose customers were notified")
	row("lost", s.lost, "answered, and without a row, its charge, its order or its notification")
	row("repeats", s.repeats(), "inside the declared window: at most %d (%s)", s.window(),
		s.windowText())
	fmt.Fprintln(out)
	row("killed", s.kills, "of %d processes, each with kill -9 while payments flowed", s.processes)
	row("requests", s.requests, "sent by the clients, %d of them although nothing had failed",
		s.impatient)
	row("  replayed", s.replays, "answers that were those to an earlier request")
	row("payment.completed", s.paymentRecords, "records, %d different events", s.paymentIDs)
	row("  skipped", s.orders["duplicates"],
		"by orderstatus, which counted them, after the rewind included")
	row("order.paid", s.orderRecords, "records, %d different events", s.orderIDs)
	row("  skipped", s.notifier["duplicates"],
		"by notifier, which counted them, after the rewind included")
	row("rewound", s.again,
		"records were consumed once more from the beginning, and skipped; changed by that: %s",
		yesNo(s.changed))
	row("dead letters", s.deadLetters, "in both dead-letter topics")
	fmt.Fprintln(out)
	if list := s.problems(); len(list) > 0 {
		fmt.Fprintf(out, "FAILED after %.1fs (seed %d): %s\n", s.took.Seconds(), s.seed,
			strings.Join(list, "; "))
		return
	}
	fmt.Fprintf(out, "OK in %.1fs: no event was lost, no customer paid twice, "+
		"and none was notified twice beyond the declared window.\n", s.took.Seconds())
}

func yesNo(b bool) string {
	if b {
		return "SOMETHING"
	}
	return "nothing"
}

// windowText explains the size of the window.
func (s *summary) windowText() string {
	if len(s.lanes) == 0 {
		return "no notifier was killed"
	}
	parts := make([]string, len(s.lanes))
	for i, l := range s.lanes {
		parts[i] = strconv.Itoa(l)
	}
	return fmt.Sprintf("%d notifiers killed, one in flight in each of their %s partitions",
		len(s.lanes), strings.Join(parts, " + "))
}
