// Package jobs has the commands about jobs, batches and events of the client whose key is used.
package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
)

// Command is "jobs" with what is below it.
func Command(s *session.Session) *cobra.Command {
	c := s.ForClients(command.Group(&cobra.Command{
		Use: "jobs", Aliases: []string{"job"}, Short: "Submit jobs and see what becomes of them",
		Example: "  forgerun jobs submit SUCCESS_FAST --wait\n  forgerun jobs list --state FAILED\n  forgerun jobs watch JOB",
	}))
	c.AddCommand(submitCommand(s), getCommand(s), listCommand(s), watchCommand(s), waitCommand(s), cancelCommand(s), retryCommand(s),
		reportCommand(s), resultCommand(s), logsCommand(s), deleteCommand(s))
	return c
}

var jobView = output.View{ID: "job_id", Columns: []output.Column{
	{Head: "JOB", Path: "job_id"},
	{Head: "STATE", Path: "state", State: true},
	{Head: "KIND", Path: "work_kind"},
	{Head: "ATTEMPT", Show: attempts},
	{Head: "AGE", Path: "created_at", Age: true},
	{Head: "DETAIL", Show: detail},
	{Head: "TYPE", Path: "type", Wide: true},
	{Head: "BATCH", Path: "batch_id", Wide: true},
	{Head: "CORRELATION", Path: "correlation_id", Wide: true},
	{Head: "STARTED", Path: "started_at", Wide: true},
	{Head: "FINISHED", Path: "finished_at", Wide: true},
}}

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
	return &cobra.Command{
		Use: "get JOB...", Short: "Show jobs as they are now", Args: command.AtLeast(1),
		Example: "  forgerun jobs get 01981f2e-...\n  forgerun jobs get 01981f2e-... -o go-template='{{.state}}'",
		RunE: func(c *cobra.Command, ids []string) error {
			return each(c.Context(), s, ids, func(ctx context.Context, api *client.Client, id string) (any, error) {
				return api.Job(ctx, id)
			})
		},
	}
}

// each does something with each job, and prints what came of it. It goes on after a failure, which is told at the end.
func each(ctx context.Context, s *session.Session, ids []string, do func(context.Context, *client.Client, string) (any, error)) error {
	api, err := s.Client()
	if err != nil {
		return err
	}
	printer, err := s.Printer()
	if err != nil {
		return err
	}
	var items []any
	var failed error
	for _, id := range ids {
		item, err := do(ctx, api, id)
		if err != nil {
			if failed != nil {
				s.Notef("forgerun: %v", failed)
			}
			if failed = fmt.Errorf("%s: %w", id, err); ctx.Err() != nil {
				break
			}
			continue
		}
		items = append(items, item)
	}
	if len(items) > 0 {
		if len(ids) == 1 {
			err = printer.One(jobView, items[0])
		} else {
			err = printer.List(jobView, items)
		}
		if err != nil {
			return err
		}
	}
	return failed
}

// listFlags are the filters of a list.
type listFlags struct {
	filter        client.JobFilter
	after, before string
	limit         int
}

func listCommand(s *session.Session) *cobra.Command {
	var f listFlags
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List jobs, the newest first", Args: command.Exactly(0),
		Example: "  forgerun jobs list --state FAILED --after 1h\n  forgerun jobs cancel $(forgerun jobs list --state QUEUED -o name)",
		RunE:    func(c *cobra.Command, _ []string) error { return list(c.Context(), s, f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.filter.State, "state", "", "only jobs in this `state`, such as FAILED")
	flags.StringVar(&f.filter.Type, "type", "", "only jobs of this `type`: EXECUTE, DEFERRED or EMIT_EVENT")
	flags.StringVar(&f.filter.WorkKind, "kind", "", "only jobs of this work `kind`")
	flags.StringVar(&f.filter.ScheduleID, "schedule", "", "only runs of this `schedule`")
	flags.StringVar(&f.filter.BatchID, "batch", "", "only jobs of this `batch`")
	flags.StringVar(&f.after, "after", "", "only jobs created at this `time` or later: RFC 3339, or how long ago, as in 90m")
	flags.StringVar(&f.before, "before", "", "only jobs created before this `time`")
	flags.IntVar(&f.limit, "limit", 50, "at most so many; 0: all")
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(
		[]string{client.Created, client.Queued, client.Assigned, client.Running, client.Succeeded, client.Failed, client.Canceled},
		cobra.ShellCompDirectiveNoFileComp))
	return c
}

func list(ctx context.Context, s *session.Session, f listFlags) (err error) {
	now := time.Now()
	if f.filter.CreatedAfter, err = Ago(f.after, now); err != nil {
		return command.Usagef("--after: %w", err)
	}
	if f.filter.CreatedBefore, err = Ago(f.before, now); err != nil {
		return command.Usagef("--before: %w", err)
	}
	if f.limit > 0 {
		f.filter.PageSize = min(f.limit, 100)
	}
	api, err := s.Client()
	if err != nil {
		return err
	}
	printer, err := s.Printer()
	if err != nil {
		return err
	}
	jobs, err := Take(api.Jobs(ctx, f.filter), f.limit)
	if err != nil {
		return err
	}
	return printer.List(jobView, jobs)
}

// Take reads a list to its end, or to its first limit entries.
func Take[T any](entries iter.Seq2[T, error], limit int) (all []any, err error) {
	for entry, err := range entries {
		if err != nil {
			return nil, err
		}
		if all = append(all, entry); len(all) == limit {
			break
		}
	}
	return all, nil
}

// Ago reads a moment: RFC 3339, or how long before now it was. "" is the zero time.
func Ago(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(-d).UTC(), nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is neither a time such as 2026-01-31T12:00:00Z nor a duration such as 90m", text)
	}
	return at.UTC(), nil
}

func reportCommand(s *session.Session) *cobra.Command {
	attempt := 0
	c := &cobra.Command{
		Use: "report JOB", Short: "The report of an attempt that has ended: outcome, duration, events", Args: command.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := s.Client()
			if err != nil {
				return err
			}
			printer, err := s.Printer()
			if err != nil {
				return err
			}
			report, err := api.Report(c.Context(), args[0], attempt)
			if err != nil {
				return err
			}
			if err := printer.One(reportView, report); err != nil || !printer.Form.IsTable() {
				return err
			}
			_, _ = fmt.Fprintln(s.Stdout)
			return printer.List(eventView, anys(report.Events))
		},
	}
	c.Flags().IntVar(&attempt, "attempt", 0, "`number` of the attempt; 0: the latest one")
	return c
}

var reportView = output.View{ID: "job_id", Columns: []output.Column{
	{Head: "JOB", Path: "job_id"}, {Head: "ATTEMPT", Path: "attempt"},
	{Head: "OUTCOME", Path: "outcome"},
	{Head: "DURATION", Show: func(v any) string {
		ms, _ := output.At(v, "duration_ms").(json.Number)
		n, _ := ms.Int64()
		return output.Span(time.Duration(n) * time.Millisecond)
	}},
	{Head: "FINISHED", Path: "finished_at"}, {Head: "DETAIL", Show: detail},
}}

func anys[T any](all []T) []any {
	items := make([]any, len(all))
	for i, one := range all {
		items[i] = one
	}
	return items
}
