// Package browser tests the ops page in a headless Chromium, as a person meets it: the program of package page is a process of its
// own, with a real Kafka and a real Postgres, and axe-core judges whether everybody can use what it shows.
//
// It needs chromium on the path and `make browser-deps`. Without them the tests are skipped, or fail if IDEM_REQUIRE_BROWSER is
// set, as in CI. Nothing but the loopback interface is used.
package browser
