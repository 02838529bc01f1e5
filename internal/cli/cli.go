// Package cli is the command line of those who use and operate ForgeRun. It is an outside client: it knows the service through
// package client and the operator API, and shares no code with it.
package cli

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/accounts"
	"github.com/forgerun/forgerun/internal/cli/admin"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/jobs"
	"github.com/forgerun/forgerun/internal/cli/schedules"
	"github.com/forgerun/forgerun/internal/cli/session"
	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/cli/testbed"
	"github.com/forgerun/forgerun/internal/cli/webhooks"
)

// The groups of commands in the help text.
const (
	GroupUse     = "use"
	GroupOperate = "operate"
)

// Add adds the commands to root, with their groups.
func Add(root *cobra.Command, s *session.Session) {
	root.AddGroup(&cobra.Group{ID: GroupUse, Title: "Use the service:"}, &cobra.Group{ID: GroupOperate, Title: "Operate the service:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			explained(s, c)
			root.AddCommand(c)
		}
	}
	add(GroupUse, jobs.Command(s), jobs.BatchCommand(s), schedules.Command(s), jobs.EventsCommand(s), webhooks.Command(s),
		testbed.Command(s), jobs.KindsCommand(s), loginCommand(s), contextsCommand(s))
	add(GroupOperate, admin.Command(s), accounts.ClientsCommand(s), accounts.KeysCommand(s), openCommand(s))
	root.AddCommand(topics()...)
}

// explained bounds c, and all below it, by their flag --timeout, and has their errors say what to do about them.
func explained(s *session.Session, c *cobra.Command) {
	for _, below := range c.Commands() {
		explained(s, below)
	}
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			ctx, cancel := session.Within(c)
			defer cancel()
			c.SetContext(ctx)
			return s.Explain(ctx, run(c, args))
		}
	}
}

func openCommand(s *session.Session) *cobra.Command {
	printOnly := false
	c := s.ForOperators(command.New("open", "Open the console in the browser", func(c *cobra.Command, _ []string) error {
		admin, err := s.Operator()
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintln(s.Stdout, s.Style().Link(admin.Console(), admin.Console()))
		if printOnly {
			return nil
		}
		program, arguments := browser(s.Getenv)
		start := exec.CommandContext(c.Context(), program, append(arguments, admin.Console())...)
		start.Stderr, start.Env = term.Raw(s.Stderr), os.Environ()
		if err := start.Run(); err != nil {
			return fmt.Errorf("the browser could not be started by %s: %w: open the address above", program, err)
		}
		return nil
	}))
	c.Long = "Opens the console of the admin listener in the browser: the program BROWSER, or what the system uses. The console asks for\n" +
		"the operator's token itself: it is not in the address."
	c.Flags().BoolVar(&printOnly, "print", false, "only print the address")
	return c
}

func browser(getenv func(string) string) (program string, arguments []string) {
	if program := getenv("BROWSER"); program != "" {
		return program, nil
	}
	switch runtime.GOOS {
	case "darwin":
		return "open", nil
	case "windows":
		return "rundll32", []string{"url.dll,FileProtocolHandler"}
	default:
		return "xdg-open", nil
	}
}

// topics are what "forgerun help TOPIC" explains beside the commands.
func topics() []*cobra.Command {
	all := []*cobra.Command{
		{Use: "access", Short: "How the address and the key are found", Long: `
The commands for clients need the address of the service and an API key, those for operators the address of
an admin listener and an operator's token. They are looked for in this order, and the first that is found counts:

  1. flags              --url, --key, --admin-url, --admin-token
  2. a named context    --context NAME
  3. the environment    FORGERUN_URL, FORGERUN_API_KEY, FORGERUN_ADMIN_URL, FORGERUN_ADMIN_TOKEN
  4. a context          FORGERUN_CONTEXT, or the current one of the file
  5. forgerun dev       one that runs in this folder (dev.json in FORGERUN_DATA_DIR, default .forgerun)

A key is sent only to the address that it was found with, or, if it was given alone as a flag or in the environment, to the
address that counts. Arguments are visible to other users in ps: prefer the environment or a context for secrets.`},
		{Use: "contexts-file", Short: "Where contexts are kept", Long: `
Contexts are kept in FORGERUN_CONTEXTS, or in forgerun/contexts.yaml below XDG_CONFIG_HOME or ~/.config. The file has mode 0600;
one that others can read is refused.

  current: staging
  contexts:
    staging:
      url: https://staging.example.com
      key: frk_...
      admin_url: https://admin.staging.example.com
      admin_token: ...

'forgerun contexts set' writes it, 'forgerun contexts list' shows it without the secrets.`},
		{Use: "output", Short: "The forms of output", Long: `
--output (-o) takes:

  table            aligned columns (the default)
  wide             more columns, and nothing cut off
  json             one object, or an array of a list; of a stream one object on each line
  yaml             the same as YAML; of a stream one document each
  name             the id of each thing on a line
  go-template=...  a template of Go's text/template, once for each thing, such as '{{.job_id}} {{.state}}';
                   {{json .result}} writes a member as JSON

Members have the names of the API. Colours are used in a terminal only, and not if NO_COLOR is set. What is told beside
the output goes to standard error.`},
		{Use: "exit-codes", Short: "What exit codes mean", Long: `
  0    it succeeded; of commands that wait: all jobs succeeded
  1    it failed; of commands that wait: a job failed
  2    wrong usage or configuration: nothing was done
  3    a job was canceled (jobs wait, watch, submit --wait, retry --wait; batch submit --wait)
  4    the time of --timeout was over before the end
  130  interrupted by Ctrl-C`},
	}
	for _, topic := range all {
		topic.Long = strings.TrimPrefix(topic.Long, "\n")
	}
	return all
}
