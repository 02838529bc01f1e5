package admin

import (
	"context"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/operator"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
)

var jobView = output.View{ID: "job_id", Columns: []output.Column{
	{Head: "JOB", Path: "job_id"},
	{Head: "CLIENT", Path: "client_id"},
	{Head: "STATE", Path: "state", State: true},
	{Head: "KIND", Path: "work_kind"},
	{Head: "ATTEMPT", Path: "attempt"},
	{Head: "AGE", Path: "created_at", Age: true},
	{Head: "CODE", Path: "failure_code"},
	{Head: "WAITS", Path: "waiting.detail", Wide: true},
	{Head: "DETAIL", Path: "failure.detail", Wide: true},
	{Head: "WORKER", Path: "worker_id", Wide: true},
	{Head: "CORRELATION", Path: "correlation_id", Wide: true},
}}

var changeView = output.View{ID: "job_id", Columns: []output.Column{
	{Head: "JOB", Path: "job_id"}, {Head: "STATE", Path: "state", State: true}, {Head: "ATTEMPT", Path: "attempt"},
	{Head: "CHANGED", Path: "changed"},
}}

func jobsCommand(s *session.Session) *cobra.Command {
	c := command.Group(&cobra.Command{Use: "jobs", Aliases: []string{"job"}, Short: "Jobs of all clients"})
	override := false
	retry := &cobra.Command{
		Use: "retry JOB", Short: "Run the next attempt of a failed job", Args: command.Exactly(1),
		RunE: change(s, changeView, "/jobs/%s/retry", func() any { return map[string]bool{"override": override} }),
	}
	retry.Flags().BoolVar(&override, "override", false, "also what is not retryable, and beyond its attempts")
	c.AddCommand(listJobsCommand(s), countJobsCommand(s),
		&cobra.Command{
			Use: "get JOB", Short: "Show a job with its attempts, events and deliveries (-o yaml)", Args: command.Exactly(1),
			RunE: get(s, jobView, "/jobs/%s"),
		}, retry,
		&cobra.Command{
			Use: "cancel JOB", Short: "Cancel a job; one that has ended stays as it is", Args: command.Exactly(1),
			RunE: change(s, changeView, "/jobs/%s/cancel", nothing),
		},
		&cobra.Command{
			Use: "delete JOB", Short: "Delete a job that has ended", Args: command.Exactly(1),
			RunE: s.Admin(func(ctx context.Context, api *operator.Client, _ *output.Printer, args []string) error {
				_, err := api.Do(ctx, http.MethodDelete, "/jobs/"+url.PathEscape(args[0]), nil)
				return err
			}),
		})
	return c
}

func listJobsCommand(s *session.Session) *cobra.Command {
	var f filter
	c := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List jobs of all clients", Args: command.Exactly(0)}
	f.flags(c)
	return pages(s, c, jobView, 50, func([]string) (string, url.Values, error) {
		query, err := f.query()
		return "/jobs", query, err
	})
}

func countJobsCommand(s *session.Session) *cobra.Command {
	var f filter
	view := output.View{ID: "count", Columns: []output.Column{{Head: "COUNT", Path: "count"}, {Head: "MORE", Path: "more"}}}
	c := &cobra.Command{
		Use: "count", Short: "Count jobs of all clients", Args: command.Exactly(0),
		RunE: s.Admin(func(ctx context.Context, api *operator.Client, p *output.Printer, _ []string) error {
			query, err := f.query()
			if err != nil {
				return err
			}
			count, err := api.Get(ctx, "/jobs/count", query)
			if err != nil {
				return err
			}
			return p.One(view, count)
		}),
	}
	f.flags(c)
	return c
}
