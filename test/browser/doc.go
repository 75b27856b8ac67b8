// Package browser tests the ops page in a headless Chromium, as a person meets it. The program of
// package page is a process of its own, with a real Kafka and a real Postgres. axe-core judges
// whether the pages are accessible. The tests also cover one page of each kind of the site that
// `make docs` builds.
//
// It needs chromium on the path and `make browser-deps`. Without them the tests are skipped, or
// fail if IDEM_REQUIRE_BROWSER is set, as in CI. The pages use the loopback interface only. The
// first build of the site needs PyPI.
package browser
