package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/term"
)

var jobView = output.NewView("JOB:job_id, STATE:state:state, KIND:work_kind, ATTEMPT, AGE:created_at:age, DETAIL, TYPE:type:wide, "+
	"BATCH:batch_id:wide, CORRELATION:correlation_id:wide, STARTED:started_at:wide, FINISHED:finished_at:wide", attempts, detail)

var reportView = output.NewView("JOB:job_id, ATTEMPT:attempt, OUTCOME:outcome, DURATION, FINISHED:finished_at, DETAIL", func(v any) string {
	ms, _ := output.At(v, "duration_ms").(json.Number)
	n, _ := ms.Int64()
	return output.Span(time.Duration(n) * time.Millisecond)
}, detail)

func (s *Shell) jobs() *cobra.Command {
	submit := s.cmd("submit [KIND]", "Submit a job", submit)
	submit.ValidArgsFunction = completeKinds
	listed := s.cmd("list", "List jobs, newest first", list(jobView, "/v1/jobs", 50,
		param{"state", "state", "", "only jobs in this `state`, such as FAILED"},
		param{"type", "type", "", "only jobs of this `type`: EXECUTE, DEFERRED or EMIT_EVENT"},
		param{"kind", "work_kind", "", "only jobs of this work `kind`"},
		param{"schedule", "schedule_id", "", "only jobs of this `schedule`"},
		param{"batch", "batch_id", "", "only jobs of this `batch`"},
		param{"after", "created_after", "", "only jobs created at this `time` or later: RFC 3339, or how long ago, as in 90m"},
		param{"before", "created_before", "", "only jobs created before this `time`"}))
	_ = listed.RegisterFlagCompletionFunc("state", cobra.FixedCompletions([]string{
		client.Created, client.Queued, client.Assigned, client.Running, client.Succeeded, client.Failed, client.Canceled,
	}, cobra.ShellCompDirectiveNoFileComp))
	events := s.cmd("events JOB", "Show the event log of a job", jobEvents)
	events.Aliases = []string{"logs"}
	with := func(states []string, commands ...*cobra.Command) []*cobra.Command {
		for _, c := range commands {
			c.ValidArgsFunction = s.completeJobs(states)
		}
		return commands
	}
	c := s.group("jobs job", "Submit and follow jobs", submit, listed)
	c.AddCommand(with([]string{""},
		s.cmd("get JOB...", "Show the current state of jobs",
			each(func(c *call, api *client.Client, id string) (any, error) { return api.Job(c, id) })),
		s.cmd("watch JOB", "Watch a job until it ends; the exit code reports its outcome", watchFlags(watch)),
		s.cmd("wait JOB...", "Wait until jobs end; the exit code reports their outcome", watchFlags(wait)),
		s.cmd("cancel JOB...", "Cancel jobs; finished jobs do not change", each(changing((*client.Client).Cancel))),
		s.cmd("retry JOB...", "Retry failed jobs", retryJobs),
		events)...)
	c.AddCommand(with([]string{client.Succeeded, client.Failed, client.Canceled},
		s.cmd("report JOB", "Show the report of a finished attempt: outcome, duration, events", report),
		s.cmd("result JOB", "Write the result of a job, byte for byte", result),
		s.cmd("delete JOB...", "Delete finished jobs and all their data",
			each(func(c *call, api *client.Client, id string) (any, error) { return nil, api.Delete(c, id) })))...)
	return s.forClients(c)
}

// completeJobs completes the ids of the latest jobs in the given states. The state "" means any state.
func (s *Shell) completeJobs(states []string) cobra.CompletionFunc {
	const most = 50
	return func(c *cobra.Command, _ []string, begun string) (ids []string, _ cobra.ShellCompDirective) {
		api, err := s.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), 2*time.Second)
		defer cancel()
		for _, state := range states {
			jobs, _ := first(most, api.Jobs(ctx, client.JobFilter{State: state}))
			for _, j := range jobs {
				if strings.HasPrefix(j.JobID, begun) && len(ids) < most {
					ids = append(ids, j.JobID+"\t"+j.WorkKind+", "+j.State)
				}
			}
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}

func attempts(job any) string {
	text := output.Text(output.At(job, "attempt"))
	if most := output.Text(output.At(job, "max_attempts")); most != "" && most != "0" {
		text += "/" + most
	}
	return text
}

// detail returns the text that best explains a job's state, such as its failure.
func detail(job any) string {
	text := func(path string) string { return output.Text(output.At(job, path)) }
	switch {
	case text("failure.detail") != "":
		return text("failure.detail")
	case text("failure_code") != "":
		return text("failure_code")
	case text("result.media_type") != "":
		return fmt.Sprintf("%s, %s bytes", text("result.media_type"), text("result.size_bytes"))
	case text("waiting.reason") != "" && text("waiting.until") != "":
		return "waits: " + text("waiting.reason") + " until " + text("waiting.until")
	case text("waiting.reason") != "":
		return "waits: " + text("waiting.reason")
	case text("progress.percentage") != "":
		return strings.TrimSpace(text("progress.percentage") + "% " + text("progress.phase"))
	}
	return ""
}

// jobAction acts on one job and returns the value to print, or nil.
type jobAction func(c *call, api *client.Client, id string) (any, error)

// each calls `do` with each id and prints the results. It continues after an error. It returns the last error and prints the others.
func each(do jobAction) action {
	return using(func(c *call, api *client.Client) error {
		var items []any
		var failed error
		for _, id := range c.args {
			item, err := do(c, api, id)
			if err != nil {
				if failed != nil {
					c.notef("forgerun: %v", failed)
				}
				if failed = c.reword(err); !strings.Contains(failed.Error(), id) {
					failed = fmt.Errorf("%s: %w", id, failed)
				}
				if c.Err() != nil {
					break
				}
			} else if item != nil {
				items = append(items, item)
			}
		}
		if len(items) > 0 {
			if err := printJobs(c, items); err != nil {
				return err
			}
		}
		if failed != nil && len(c.args) > 1 && c.Err() == nil { // not a usage error: other jobs may have changed
			return &command.Exit{Code: command.Failed, Err: failed}
		}
		return failed
	})
}

func printJobs[T any](c *call, jobs []T) error {
	if len(c.args) == 1 {
		return c.One(jobView, jobs[0])
	}
	return c.List(jobView, jobs)
}

func changing(change func(*client.Client, context.Context, string, ...client.Option) (*client.Changed, error)) jobAction {
	return func(c *call, api *client.Client, id string) (any, error) {
		changed, err := change(api, c, id)
		if err != nil {
			return nil, err
		}
		if !changed.Changed {
			c.notef("%s is unchanged: %s", id, changed.State)
		}
		return api.Job(c, id)
	}
}

func retryJobs(f *pflag.FlagSet) run {
	waiting, retry := f.BoolP("wait", "w", false, "wait until the jobs end; the exit code reports their outcome"),
		changing((*client.Client).Retry)
	timeoutFlag(f, "with --wait: ")
	return func(c *call) error {
		if !*waiting {
			return each(retry)(f)(c)
		}
		return c.using(func(c *call, api *client.Client) error {
			for _, id := range c.args {
				if _, err := retry(c, api, id); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
			}
			return wait(c, api)
		})
	}
}

func report(f *pflag.FlagSet) run {
	attempt := f.Int("attempt", 0, "`number` of the attempt; 0: the latest")
	return using(func(c *call, api *client.Client) error {
		report, err := api.Report(c, c.args[0], *attempt)
		if err != nil {
			return err
		}
		if err := c.One(reportView, report); err != nil || !c.IsTable() {
			return err
		}
		_, _ = fmt.Fprintln(c.Out)
		return c.List(eventView, report.Events)
	})(f)
}

func result(f *pflag.FlagSet) run {
	file := f.String("to", "", "`file` to write the result to; default: standard output")
	return using(func(c *call, api *client.Client) error {
		result, err := api.Result(c, c.args[0])
		switch {
		case err != nil:
			return err
		case *file != "":
			return os.WriteFile(*file, result.Data, 0o644)
		case term.IsTerminal(c.Stdout) && term.Printable(string(result.Data)) != string(result.Data):
			return command.Usagef("the result is %s, not text: write it to a file with --to FILE", result.ContentType)
		}
		_, err = term.Raw(c.Stdout).Write(result.Data)
		return err
	})(f)
}
