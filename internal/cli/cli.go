// Package cli is the command line for users and operators of ForgeRun. It is an outside client: it uses the service through
// package client and the operator API, and shares no code with it.
package cli

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/internal/cli/term"
)

// Add adds the commands to root, in their groups.
func Add(root *cobra.Command, s *Shell) {
	add := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range commands {
			c.GroupID = id
		}
		root.AddCommand(commands...)
	}
	add("use", "Use the service:", s.jobs(), s.batch(), s.schedules(), s.events(), s.webhooks(), s.testbed(), s.kinds(), s.login(),
		s.contexts())
	add("operate", "Operate the service:", s.adminCommand(), s.clients(), s.keys(),
		s.forOperators(s.cmd("open", "Open the console in the browser", open,
			"Opens the console of the admin listener in the browser: the program BROWSER, or what the system uses. The console asks for\n"+
				"the operator's token itself: it is not in the address.")))
	root.AddCommand(topics()...)
}

func open(f *pflag.FlagSet) run {
	printOnly := f.Bool("print", false, "only print the address")
	return func(c *call) error {
		_, base, err := c.operator()
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintln(c.Stdout, c.Style.Link(base+"/", base+"/"))
		if *printOnly {
			return nil
		}
		program, arguments := browser(c.Getenv)
		start := exec.CommandContext(c, program, append(arguments, base+"/")...)
		start.Stderr, start.Env = term.Raw(c.Stderr), os.Environ()
		if err := start.Run(); err != nil {
			return fmt.Errorf("the browser could not be started by %s: %w: open the address above", program, err)
		}
		return nil
	}
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

// topics are the texts of "forgerun help TOPIC".
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

  table  aligned columns (the default)
  wide   more columns, and nothing cut off
  json   one object, an array for a list, or one object on each line for a stream: for jq

--quiet (-q) prints only ids, one on a line: JOB=$(forgerun jobs submit SUCCESS_FAST -q)

Members have the names of the API. Colours are used in a terminal only, and not if NO_COLOR is set. Notes and
errors go to standard error.`},
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
