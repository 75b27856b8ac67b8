// Command release checks that the modules which users import can be released. See
// docs/decisions/releases.md.
//
//	release api                write api/next.txt: the API less that of the last release
//	release check [NAME]       run every check, or those with the names
//	release licences           write THIRD_PARTY.md: the licences of dependencies
//	release texts MODULE FILE  write the texts of these licences for one module
//	release tree DIR           write the modules of a version to DIR, without replace lines
//	release prepare            make the changes to CHANGELOG.md and api/ that a release needs
//	release publish            check each step of a release, and push its tags with -push
//	release notes FILE         write the section of the version in CHANGELOG.md
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
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
	version := flags.String("version", "", "version of the modules, such as 0.1.0")
	modules := flags.String("modules", "", "folders of the modules that users import")
	remote := flags.String("remote", "origin", "remote that gets the tags")
	push := flags.Bool("push", false, "make the tags and push them; without it, release is a dry run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p := publication{
		repo: repo{root: *root, modules: strings.Fields(*modules)}, today: utcDate(time.Now()),
		remote: *remote, push: *push,
	}
	if *version != "" {
		p.version = "v" + strings.TrimPrefix(*version, "v")
	}
	if len(p.modules) == 0 {
		return fmt.Errorf("no modules: give -modules")
	}
	return p.runVerb(ctx, flags.Args())
}

// runVerb runs the verb that the arguments name.
func (p *publication) runVerb(ctx context.Context, args []string) error {
	verbs := map[string]struct {
		args    int // -1: any number
		version bool
		run     func(args []string) error
	}{
		"api":      {0, false, func([]string) error { return p.writeNext() }},
		"check":    {-1, false, func(names []string) error { return p.check(ctx, names) }},
		"licences": {0, false, func([]string) error { return p.writeLicences(ctx) }},
		"texts":    {2, false, func(a []string) error { return p.writeTexts(ctx, a[0], a[1]) }},
		"tree":     {1, true, func(a []string) error { return p.tree(ctx, a[0], p.version) }},
		"notes":    {1, true, func(a []string) error { return p.writeNotes(a[0]) }},
		"prepare":  {0, true, func([]string) error { return p.prepare(ctx) }},
		"publish":  {0, true, func([]string) error { return p.publish(ctx) }},
	}
	if len(args) == 0 {
		return fmt.Errorf("no verb: want one of %s", strings.Join(slices.Sorted(maps.Keys(verbs)), ", "))
	}
	verb, known := verbs[args[0]]
	switch {
	case !known:
		return fmt.Errorf("no verb %q: want one of %s", args[0], strings.Join(slices.Sorted(maps.Keys(verbs)), ", "))
	case verb.args >= 0 && len(args)-1 != verb.args:
		return fmt.Errorf("%s wants %d arguments, not %q", args[0], verb.args, args[1:])
	case verb.version && p.version == "":
		return fmt.Errorf("%s wants a version: give VERSION=0.1.0", args[0])
	}
	return verb.run(args[1:])
}

// repo is the repository and those of its modules that users import.
type repo struct {
	root    string
	modules []string // folders
}
