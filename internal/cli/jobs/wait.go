package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
)

// held is for how long the service holds an answer back, at most as long as it allows.
const held = 20 * time.Second

// atOnce is how many jobs are waited for at the same time.
const atOnce = 16

func waitCommand(s *session.Session) *cobra.Command {
	c := command.New("wait JOB...", "Wait until jobs have ended, and exit as they ended", s.Public(wait))
	c.Long = "Waits until all of the jobs have ended. Exit codes: 0 all succeeded, 1 one failed, 3 one was canceled (and none failed), " +
		"4 the time to wait was over first."
	c.Flags().Duration("timeout", 0, "for how long; 0: no limit")
	return c
}

// wait waits for jobs and prints them as they ended.
func wait(ctx context.Context, api *client.Client, printer *output.Printer, ids []string) error {
	ended, errs := make([]*client.Job, len(ids)), make([]error, len(ids))
	var waiting errgroup.Group
	waiting.SetLimit(atOnce)
	for i, id := range ids {
		waiting.Go(func() error {
			ended[i], errs[i] = api.Wait(ctx, id, client.PreferWait(held))
			return nil
		})
	}
	_ = waiting.Wait() // errs has the errors of all
	var items []any
	code := command.Succeeded
	for i, id := range ids {
		if errs[i] != nil {
			return fmt.Errorf("%s: %w", id, errs[i])
		}
		items = append(items, ended[i])
		code = worse(code, codeOf(ended[i]))
	}
	if err := printJobs(printer, items, len(ids)); err != nil {
		return err
	}
	return command.Code(code)
}

// codeOf is the exit code of a job that has ended.
func codeOf(job *client.Job) int {
	switch job.State {
	case client.Succeeded:
		return command.Succeeded
	case client.Canceled:
		return command.Canceled
	}
	return command.Failed
}

// worse gives the code that says more: a failure before a cancel before a success.
func worse(a, b int) int {
	if a == command.Failed || b == command.Failed {
		return command.Failed
	}
	return max(a, b)
}
