package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/cmd/idem/internal/scaffold"
)

func newInitCmd(a *app) *cobra.Command {
	s := scaffold.Service{Version: libraryVersion()}
	cmd := &cobra.Command{
		Use:   "init [<directory>]",
		Short: "Write a small service with a consumer, a handler and its test",
		Long: "Writes a small service into an empty directory, by default the current one: a\n" +
			"consumer with one handler, its test, a Dockerfile, a compose file with the\n" +
			"servers, and a Makefile. The command connects to no server.",
		Example: "  idem init --module example.com/payments\n" +
			"  idem init --module example.com/payments --store-type postgres " +
			"--topic payments payments",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return a.writeService(dir, s)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&s.Module, "module", "", "module path of the service; its last element, but "+
		"for a major version, is the name and the group")
	flags.StringVar(&s.Topic, "topic", "payments", "topic that the service consumes")
	flags.StringVar(&s.Store, "store-type", scaffold.Stores[0],
		"store of the service: "+strings.Join(scaffold.Stores, " or "))
	flags.StringVar(&s.Replace, "replace", "", "use this clone of Idem instead of a release")
	_ = cmd.MarkFlagRequired("module") // an error means that the flag does not exist
	complete(cmd, "store-type", scaffold.Stores...)
	return cmd
}

func (a *app) writeService(dir string, s scaffold.Service) error {
	if s.Replace != "" {
		clone, err := filepath.Abs(s.Replace)
		if err != nil {
			return usage("--replace: %v", err)
		}
		s.Replace = clone
	}
	if err := s.Check(); err != nil {
		return usage("%v", err)
	}
	files, err := scaffold.Write(dir, s)
	if errors.Is(err, scaffold.ErrNotEmpty) {
		return usage("%w", err)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "wrote %s\n\nnext:\n", strings.Join(files, ", "))
	if dir != "." {
		fmt.Fprintf(a.stdout, "  cd %s\n", dir)
	}
	fmt.Fprintln(a.stdout, "  go mod tidy")
	if s.Store == scaffold.Postgres {
		fmt.Fprint(a.stdout, "  make up     # Kafka and Postgres\n  make test\n")
	} else {
		fmt.Fprint(a.stdout, "  make test\n  make up     # Kafka\n")
	}
	fmt.Fprintln(a.stdout, "  make run    # and in another terminal: make send")
	return nil
}

// libraryVersion returns the version of Idem that this program was built from. A build from a clone
// has no version, or one that no module proxy knows.
func libraryVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || strings.Contains(info.Main.Version, "+dirty") {
		return ""
	}
	return info.Main.Version
}
