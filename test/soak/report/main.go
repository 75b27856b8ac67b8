// Command report writes the section "The soak" of docs/proof.md from the log of `make soak`:
//
//	go run ./report LOG PAGE COMMIT
package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// heading begins the section, which is the last one of the page.
const heading = "\n## The soak\n"

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: report LOG PAGE COMMIT")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(log, page, commit string) error {
	f, err := os.Open(log) //nolint:gosec // the file of the caller
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	r, err := parse(f)
	if err != nil {
		return fmt.Errorf("%s: %w", log, err)
	}
	text, err := os.ReadFile(page) //nolint:gosec // the file of the caller
	if err != nil {
		return err
	}
	rest, _, _ := strings.Cut(string(text), heading)
	ran := fmt.Sprintf("Run on %s: %d CPUs, %s/%s, %s, commit %s.", time.Now().UTC().Format(time.DateOnly),
		runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), commit)
	return os.WriteFile(page, []byte(rest+heading+r.render(ran)), 0o644) //nolint:gosec // a page of the docs
}
