// Command release checks that the modules which users import can be released. See
// docs/decisions/releases.md.
//
//	release api           write api/next.txt: the API less that of the last release
//	release check [NAME]  run every check, or those with the names
//	release licences      write THIRD_PARTY.md: the licences of dependencies
//	release texts MODULE FILE  write the texts of these licences for one module
//	release tree DIR      write the modules of a version to DIR, without replace lines
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	root := flags.String("root", ".", "the repository")
	version := flags.String("version", "", "version of the modules in a tree")
	modules := flags.String("modules", "", "folders of the modules that users import")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r := repo{root: *root, modules: strings.Fields(*modules)}
	switch verb := flags.Arg(0); {
	case len(r.modules) == 0:
		return fmt.Errorf("no modules: give -modules")
	case verb == "api" && flags.NArg() == 1:
		return r.writeNext()
	case verb == "check":
		return r.check(ctx, flags.Args()[1:])
	case verb == "licences" && flags.NArg() == 1:
		return r.writeLicences(ctx)
	case verb == "texts" && flags.NArg() == 3:
		return r.writeTexts(ctx, flags.Arg(1), flags.Arg(2))
	case verb == "tree" && flags.NArg() == 2 && *version != "":
		return r.tree(ctx, flags.Arg(1), *version)
	default:
		return fmt.Errorf("want api, check [NAME], licences, texts MODULE FILE, or -version VERSION tree DIR, not %q", flags.Args())
	}
}

// repo is the repository and those of its modules that users import.
type repo struct {
	root    string
	modules []string // folders
}
