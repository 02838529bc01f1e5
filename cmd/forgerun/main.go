// Command forgerun is the job-execution service. Its commands start the API, a worker, a deliverer, or all of them in one process for
// development. Other commands are for users and operators of the service. This package reads the configuration and connects the other
// packages. It contains no business rules.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/term"
	simulator "github.com/forgerun/forgerun/internal/simulator/commands"
	"github.com/forgerun/forgerun/internal/testbed"
	build "github.com/forgerun/forgerun/internal/version"
)

//go:embed examples.txt
var exampleCalls string

var version = build.Number()

// gcPercent is the default of GOGC. Our processes have small heaps. With Go's default of 100, the garbage collector would run many times a
// second.
const gcPercent = 400

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// After the first signal, stop handling signals, so that a second one ends the process.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Environ(), os.Stdout, os.Stderr))
}

// run executes the command line and returns the exit code (see package command).
func run(ctx context.Context, args []string, getenv func(string) string, environ []string, stdout, stderr io.Writer) int {
	p := &program{arguments: args, getenv: getenv, environ: environ, stdout: term.Guard(stdout), stderr: term.Guard(stderr)}
	code, err := command.Execute(ctx, p.root(), exampleCalls, args, p.stdout, p.stderr)
	if err != nil {
		lastWords(p.stderr, sentence(err))
	}
	return code
}

type program struct {
	arguments      []string // as typed
	getenv         func(string) string
	environ        []string
	stdout, stderr io.Writer
}

const (
	groupServe  = "serve"
	groupManage = "manage"
	groupJudge  = "judge"
	groupOther  = command.Others
)

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "forgerun",
		Short: "Runs jobs submitted over HTTP, and never loses one",
		Long: "ForgeRun runs jobs submitted over HTTP, and loses none.\n" +
			"The service is configured by environment variables: see 'forgerun config'.",
		Example: "  forgerun dev                                # start everything here\n" +
			"  forgerun jobs submit SUCCESS_FAST --watch   # in another terminal: the first job\n" +
			"  forgerun verdict -- npm test                # judge your own client",
		Version: build.Get().Line("forgerun"),
	}
	root.AddGroup(&cobra.Group{ID: groupServe, Title: "Run the service:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
		}
		root.AddCommand(commands...)
	}
	api := func(p *process, ctx context.Context) (<-chan error, error) {
		a, err := p.startAPI(ctx)
		return a.failed, err
	}
	add(groupServe, p.devCommand(), p.roleCommand("api", "Serve the HTTP API; you can run any number of processes", api),
		p.roleCommand("worker", "Execute jobs; you can run any number of processes", (*process).startWorker),
		p.roleCommand("deliverer", "Deliver events to receivers; you can run any number of processes", (*process).startDeliverer))
	cli.Add(root, &cli.Shell{
		Getenv: p.getenv, Stdin: os.Stdin, Stdout: p.stdout, Stderr: p.stderr, Version: version,
	})
	root.AddGroup(&cobra.Group{ID: groupJudge, Title: "Test clients, and the service:"})
	judge := command.Program{Arguments: p.arguments, Stdout: p.stdout, Stderr: p.stderr}
	add(groupJudge, append(testbed.Commands(judge), simulator.Commands(judge)...)...)
	root.AddGroup(&cobra.Group{ID: groupManage, Title: "Maintain the service:"}, &cobra.Group{ID: groupOther, Title: "Other:"})
	add(groupManage, p.migrateCommand(), p.configCommand(), p.doctorCommand(), p.rotateCommand(), p.healthcheckCommand())
	add(groupOther, versionCommand())
	root.AddCommand(command.Man(root, version))
	return root
}

func sentence(err error) string {
	text := err.Error()
	if strings.HasPrefix(text, "forgerun ") {
		return text
	}
	return "forgerun: " + text
}

// lastWords prints why the program ends. It waits at most a second, because standard error may be a pipe without a reader.
func lastWords(stderr io.Writer, words ...any) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		_, _ = fmt.Fprintln(stderr, words...)
	}()
	select {
	case <-said:
	case <-time.After(time.Second):
	}
}

func versionCommand() *cobra.Command {
	asJSON := false
	c := command.New("version", "Print the version, commit and build date", func(c *cobra.Command, _ []string) error {
		if asJSON {
			return json.NewEncoder(c.OutOrStdout()).Encode(build.Get())
		}
		_, err := fmt.Fprintln(c.OutOrStdout(), c.Root().Version)
		return err
	})
	command.JSON(c.Flags(), &asJSON)
	return c
}
