// Package jobs has the commands about jobs, batches and events of the client whose key is used.
package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
	"github.com/forgerun/forgerun/internal/cli/term"
)

// Command is "jobs" with what is below it.
func Command(s *session.Session) *cobra.Command {
	c := s.ForClients(command.Group(&cobra.Command{
		Use: "jobs", Aliases: []string{"job"}, Short: "Submit jobs and see what becomes of them",
	}))
	latest, ended := completeIDs(s), completeIDs(s, "SUCCEEDED", "FAILED", "CANCELED")
	c.AddCommand(submitCommand(s), getCommand(s), listCommand(s), watchCommand(s), waitCommand(s), cancelCommand(s), retryCommand(s),
		reportCommand(s), resultCommand(s), logsCommand(s), deleteCommand(s))
	for _, below := range c.Commands() {
		switch below.Name() {
		case "report", "result", "delete":
			below.ValidArgsFunction = ended
		case "submit", "list":
		default:
			below.ValidArgsFunction = latest
		}
	}
	return c
}

var jobView = output.NewView("job_id",
	"JOB:job_id, STATE:state:state, KIND:work_kind, ATTEMPT, AGE:created_at:age, DETAIL, TYPE:type:wide, "+
		"BATCH:batch_id:wide, CORRELATION:correlation_id:wide, STARTED:started_at:wide, FINISHED:finished_at:wide", attempts, detail)

func attempts(job any) string {
	text := output.Text(output.At(job, "attempt"))
	if most := output.Text(output.At(job, "max_attempts")); most != "" && most != "0" {
		text += "/" + most
	}
	return text
}

// detail says what matters of a job in its state.
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

func getCommand(s *session.Session) *cobra.Command {
	return command.New("get JOB...", "Show jobs as they are now",
		each(s, func(ctx context.Context, api *client.Client, id string) (any, error) { return api.Job(ctx, id) }))
}

// eachJob does something with one job, and gives what is printed of it; nil: nothing.
type eachJob func(ctx context.Context, api *client.Client, id string) (any, error)

// each does something with each job, and prints what came of it. It goes on after a failure, which is returned at the end.
func each(s *session.Session, do eachJob) func(*cobra.Command, []string) error {
	return s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, ids []string) error {
		var items []any
		var failed error
		for _, id := range ids {
			item, err := do(ctx, api, id)
			if err != nil {
				if failed != nil {
					s.Notef("forgerun: %v", failed)
				}
				if failed = s.Said(err); !strings.Contains(failed.Error(), id) {
					failed = fmt.Errorf("%s: %w", id, failed)
				}
				if ctx.Err() != nil {
					break
				}
			} else if item != nil {
				items = append(items, item)
			}
		}
		if len(items) > 0 {
			if err := printJobs(p, items, len(ids)); err != nil {
				return err
			}
		}
		return failed
	})
}

// printJobs prints one job, or those that there are of several.
func printJobs(p *output.Printer, jobs []any, asked int) error {
	if asked == 1 {
		return p.One(jobView, jobs[0])
	}
	return p.List(jobView, jobs)
}

func listCommand(s *session.Session) *cobra.Command {
	var filter client.JobFilter
	var after, before string
	limit := 50
	c := command.New("list", "List jobs, the newest first",
		s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, _ []string) (err error) {
			now := time.Now()
			if filter.CreatedAfter, err = Ago(after, now); err != nil {
				return command.Usagef("--after: %w", err)
			}
			if filter.CreatedBefore, err = Ago(before, now); err != nil {
				return command.Usagef("--before: %w", err)
			}
			filter.PageSize, filter.State = min(limit, 100), strings.ToUpper(filter.State)
			return session.List(p, jobView, api.Jobs(ctx, filter), limit)
		}))
	flags := c.Flags()
	flags.StringVar(&filter.State, "state", "", "only jobs in this `state`, such as FAILED")
	flags.StringVar(&filter.Type, "type", "", "only jobs of this `type`: EXECUTE, DEFERRED or EMIT_EVENT")
	flags.StringVar(&filter.WorkKind, "kind", "", "only jobs of this work `kind`")
	flags.StringVar(&filter.ScheduleID, "schedule", "", "only runs of this `schedule`")
	flags.StringVar(&filter.BatchID, "batch", "", "only jobs of this `batch`")
	flags.StringVar(&after, "after", "", "only jobs created at this `time` or later: RFC 3339, or how long ago, as in 90m")
	flags.StringVar(&before, "before", "", "only jobs created before this `time`")
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(
		[]string{client.Created, client.Queued, client.Assigned, client.Running, client.Succeeded, client.Failed, client.Canceled},
		cobra.ShellCompDirectiveNoFileComp))
	return session.Limit(c, &limit)
}

// Ago reads a moment: RFC 3339, or how long before now it was. "" is the zero time.
func Ago(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(-d).UTC(), nil
	}
	at, err := command.ParseTime(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is neither a time such as 2026-01-31T12:00:00Z nor a duration such as 90m", text)
	}
	return at, nil
}

func reportCommand(s *session.Session) *cobra.Command {
	attempt := 0
	c := command.New("report JOB", "The report of an attempt that has ended: outcome, duration, events",
		s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, args []string) error {
			report, err := api.Report(ctx, args[0], attempt)
			if err != nil {
				return err
			}
			if err := p.One(reportView, report); err != nil || !p.Form.IsTable() {
				return err
			}
			_, _ = fmt.Fprintln(p.Out)
			return p.List(eventView, output.Items(report.Events))
		}))
	c.Flags().IntVar(&attempt, "attempt", 0, "`number` of the attempt; 0: the latest one")
	return c
}

var reportView = output.NewView("job_id",
	"JOB:job_id, ATTEMPT:attempt, OUTCOME:outcome, DURATION, FINISHED:finished_at, DETAIL", func(v any) string {
		ms, _ := output.At(v, "duration_ms").(json.Number)
		n, _ := ms.Int64()
		return output.Span(time.Duration(n) * time.Millisecond)
	}, detail)

// changing asks for a change of a job, and gives the job as it is then.
func changing(s *session.Session, change func(*client.Client, context.Context, string, ...client.Option) (*client.Changed, error)) eachJob {
	return func(ctx context.Context, api *client.Client, id string) (any, error) {
		changed, err := change(api, ctx, id)
		if err != nil {
			return nil, err
		}
		if !changed.Changed {
			s.Notef("%s stays as it is: %s", id, changed.State)
		}
		return api.Job(ctx, id)
	}
}

func cancelCommand(s *session.Session) *cobra.Command {
	return command.New("cancel JOB...", "Cancel jobs; those that have ended stay as they are",
		each(s, changing(s, (*client.Client).Cancel)))
}

func retryCommand(s *session.Session) *cobra.Command {
	waiting := false
	retry := changing(s, (*client.Client).Retry)
	c := command.New("retry JOB...", "Run the next attempt of failed jobs", func(c *cobra.Command, ids []string) error {
		if !waiting {
			return each(s, retry)(c, ids)
		}
		return s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, ids []string) error {
			for _, id := range ids {
				if _, err := retry(ctx, api, id); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
			}
			return wait(ctx, api, p, ids)
		})(c, ids)
	})
	c.Flags().BoolVarP(&waiting, "wait", "w", false, "wait for their end, and exit as they ended")
	c.Flags().Duration("timeout", 0, "with --wait: for how long; 0: no limit")
	return c
}

func deleteCommand(s *session.Session) *cobra.Command {
	return command.New("delete JOB...", "Delete jobs that have ended, with all that belongs to them",
		each(s, func(ctx context.Context, api *client.Client, id string) (any, error) { return nil, api.Delete(ctx, id) }))
}

func resultCommand(s *session.Session) *cobra.Command {
	file := ""
	c := command.New("result JOB", "Write the result of a job, as the bytes that they are",
		s.Public(func(ctx context.Context, api *client.Client, _ *output.Printer, args []string) error {
			result, err := api.Result(ctx, args[0])
			if err != nil {
				return err
			}
			if file != "" {
				return os.WriteFile(file, result.Data, 0o644)
			}
			if term.IsTerminal(s.Stdout) && term.Printable(string(result.Data)) != string(result.Data) {
				return command.Usagef("the result is %s, not text: write it to a file with --to FILE", result.ContentType)
			}
			_, err = term.Raw(s.Stdout).Write(result.Data)
			return err
		}))
	c.Long = "Writes the result of a job, checked against its digest, to standard output or a file. A terminal is shown text only."
	c.Flags().StringVar(&file, "to", "", "`file` to write it to")
	return c
}
