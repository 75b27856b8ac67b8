package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
)

// row is the line that a long test writes about itself.
type row struct {
	test, seed          string
	events, kills, cuts int
	outcome             string
}

// results has all results in a log.
type results struct {
	rows   []row
	failed []string // tests, by name
	passed int      // packages
}

var (
	soakLine   = regexp.MustCompile(`soak: (.+) seed=(\d+) size=(\d+) kills=(\d+) cuts=(\d+) rebalances=\d+ outcome=(.+)$`)
	soakBegin  = regexp.MustCompile(`(?:^| )soak: `)
	failedTest = regexp.MustCompile(`^ *--- FAIL: (\S+)`)
	okPackage  = regexp.MustCompile(`^ok\s`)
	badPackage = regexp.MustCompile(`^(?:FAIL|panic)[\s:]+(\S+)`)
)

// parse reads the log of `make soak`. A log without a passed package, and a line of a test that has
// another form, are errors.
func parse(log io.Reader) (r results, err error) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		text := lines.Text()
		switch {
		case soakBegin.MatchString(text):
			m := soakLine.FindStringSubmatch(text)
			if m == nil {
				return results{}, fmt.Errorf("the line %q has another form", text)
			}
			var n [3]int
			for i := range n {
				if n[i], err = strconv.Atoi(m[3+i]); err != nil {
					return results{}, fmt.Errorf("the line %q: %w", text, err)
				}
			}
			r.rows = append(r.rows, row{m[1], m[2], n[0], n[1], n[2], m[6]})
		case failedTest.MatchString(text):
			r.failed = append(r.failed, failedTest.FindStringSubmatch(text)[1])
		case badPackage.MatchString(text):
			r.failed = append(r.failed, badPackage.FindStringSubmatch(text)[1])
		case okPackage.MatchString(text):
			r.passed++
		}
	}
	if err := lines.Err(); err != nil {
		return results{}, err
	}
	if r.passed == 0 && len(r.failed) == 0 {
		return results{}, errors.New("the log has no result of a package")
	}
	return r, nil
}
