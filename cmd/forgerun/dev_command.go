package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/holders"
	local "github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/monitoring"
)

func (p *program) devCommand() *cobra.Command {
	var asked chaos
	verbose, fetch := false, ""
	c := command.New("dev", "Run everything in one process, with its own Postgres and Redis",
		func(c *cobra.Command, _ []string) error { return p.dev(c.Context(), asked, verbose, fetch) })
	c.Long = "Runs everything in one process, with its own Postgres and Redis. With --chaos, each role runs as\n" +
		"its own process behind a stable port, and dev injects faults into these processes and\n" +
		"their stores. Configured by the environment: see 'forgerun config dev'.\n\n" +
		"It prints a line for each finished job, each failed delivery and each warning. The whole log is in\n" +
		".forgerun/dev.log.\n\nFaults:\n" + local.FaultList()
	c.Flags().StringVar(&asked.asked, "chaos", "", "`faults`, each with the mean time between two of its kind, such as kill=10s,flush=30s")
	c.Flags().Uint64Var(&asked.seed, "seed", 1, "`number` that seeds the times and targets of faults")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "print the whole log as text")
	c.Flags().StringVar(&fetch, "fetch", "",
		"if no Postgres is installed, download a private copy from Maven Central or a mirror at `url`")
	c.Flags().Lookup("fetch").NoOptDefVal = local.MavenCentral
	return c
}

func (p *program) dev(ctx context.Context, asked chaos, verbose bool, fetch string) (err error) {
	if err := publicURL(&fetch)(fetch); err != nil {
		return command.Usagef("--fetch %q: %v", fetch, err)
	}
	if asked.faults, err = local.ParseChaos(asked.asked); err != nil {
		return &command.Exit{Code: command.WrongUsage, Err: err}
	}
	return p.runRole(ctx, "dev", func(ctx context.Context, cfg Config) error {
		if asked.asked != "" {
			return asked.run(ctx, cfg, p.environ, p.stdout, p.stderr)
		}
		cfg.FetchFrom = fetch
		if verbose && cfg.LogFormat == shortFormat {
			cfg.LogFormat = "text"
		}
		return p.runDev(ctx, cfg)
	})
}

// screen prints dev's output for people, separate from the log. On a terminal, one line shows the current step of the start.
type screen struct {
	*term.Status
	out   io.Writer
	style term.Style
}

func (s screen) progress(step string) { s.Show(step, step, s.style.Paint(term.Faint, step)) }

func (a *api) greet(s screen, l login) {
	base, token := "http://"+a.addr+"/v1", ""
	if a.p.cfg.OwnAdminToken {
		token = "  Admin token " + a.p.cfg.AdminToken + " (also the password of the console's pages)\n"
	}
	text := fmt.Sprintf(`
%s

  API         %s
  Client id   %s
  API key     %s
%s  Docs        %s
  Console     %s
  Dashboard   %s
  Data        %s
  Log         %s

In another terminal, in this folder:

  forgerun jobs submit SUCCESS_FAST --watch
  forgerun jobs list
  forgerun open

Or by HTTP: submit a job, watch it until it ends, read it, read its report:

  AUTH="Authorization: Bearer %s"
  JOB=$(curl -s %s/jobs -H "$AUTH" -H "Content-Type: application/json" \
     -d '{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}' | grep -o '[0-9a-f-]\{36\}'); echo "$JOB"
  curl -sN %s/jobs/$JOB/events -H "$AUTH" -H "Accept: text/event-stream"
  curl -s %s/jobs/$JOB -H "$AUTH"
  curl -s %s/jobs/$JOB/report -H "$AUTH"

Stop with Ctrl-C. Type ? and Enter to see this again.
`, s.style.Paint(term.Strong, "ForgeRun "+version+" is ready."), base, l.ClientID, l.APIKey, token,
		"http://"+a.addr+"/docs", "http://"+a.p.adminAddr+"/", "http://"+a.p.adminAddr+monitoring.DashboardPath+"/",
		strings.Join(a.p.cfg.dataFolders(), "\n              "), logFile(&a.p.cfg),
		l.APIKey, base, base, base, base)
	_, _ = io.WriteString(s.out, strings.ReplaceAll(text, "\n  forgerun ", "\n  "+os.Args[0]+" ")) // the name that the user typed
}

// dataFolders returns the data folder, and the folders of dev's own stores outside it.
func (c *Config) dataFolders() []string {
	folders := []string{c.DataDir}
	inside, _ := filepath.EvalSymlinks(c.DataDir)
	for _, dir := range c.StoreDirs {
		if filepath.Dir(dir) != inside {
			folders = append(folders, dir)
		}
	}
	return folders
}

// explainTaken explains an error about an address in use: which process uses it, and which variable to change.
func explainTaken(variable, address string, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	who := "another process"
	if holder, ok := holders.OfPort(address); ok {
		who = holder.String()
	}
	return fmt.Errorf("%s: %s is taken by %s: stop that process, or set %s to another address (port 0: any free port): %w",
		variable, address, who, variable, err)
}

// explainBusy explains an error about a folder in use: which process uses it, and which variable to change.
func explainBusy(dataDir string, err error) error {
	used, ok := errors.AsType[*local.BusyError](err)
	if !ok {
		return err
	}
	who := "another process"
	if holder, ok := holders.OfLock(used.Lock); ok {
		who = holder.String()
	}
	return fmt.Errorf("FORGERUN_DATA_DIR: the folder %s is used by %s: stop that process, or set FORGERUN_DATA_DIR to another folder: %w",
		dataDir, who, err)
}
