package admin

import (
	"fmt"
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
	c.AddCommand(listJobsCommand(s), countJobsCommand(s), getJobCommand(s), retryJobCommand(s), cancelJobCommand(s), deleteJobCommand(s))
	return c
}

func listJobsCommand(s *session.Session) *cobra.Command {
	var f filter
	limit := 50
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List jobs of all clients", Args: command.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			members, err := f.members()
			if err != nil {
				return err
			}
			return pages(c, s, jobView, "/jobs", members, limit)
		},
	}
	f.flags(c)
	c.Flags().IntVar(&limit, "limit", limit, "at most so many; 0: all")
	return c
}

func countJobsCommand(s *session.Session) *cobra.Command {
	var f filter
	view := output.View{ID: "count", Columns: []output.Column{{Head: "COUNT", Path: "count"}, {Head: "MORE", Path: "more"}}}
	c := &cobra.Command{
		Use: "count", Short: "Count jobs of all clients", Args: command.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			members, err := f.members()
			if err != nil {
				return err
			}
			return with(s, func(api *operator.Client, p *output.Printer) error {
				count, err := api.Get(c.Context(), "/jobs/count", query(members))
				if err != nil {
					return err
				}
				return p.One(view, count)
			})
		},
	}
	f.flags(c)
	return c
}

func jobPath(id string) string { return "/jobs/" + url.PathEscape(id) }

func getJobCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "get JOB", Short: "Show a job with its attempts, events and deliveries (-o yaml)", Args: command.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return with(s, func(api *operator.Client, p *output.Printer) error {
				job, err := api.Get(c.Context(), jobPath(args[0]), nil)
				if err != nil {
					return err
				}
				return p.One(jobView, job)
			})
		},
	}
}

func retryJobCommand(s *session.Session) *cobra.Command {
	override := false
	c := &cobra.Command{
		Use: "retry JOB", Short: "Run the next attempt of a failed job", Args: command.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return change(c.Context(), s, changeView, jobPath(args[0])+"/retry", map[string]bool{"override": override})
		},
	}
	c.Flags().BoolVar(&override, "override", false, "also what is not retryable, and beyond its attempts")
	return c
}

func cancelJobCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "cancel JOB", Short: "Cancel a job; one that has ended stays as it is", Args: command.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return change(c.Context(), s, changeView, jobPath(args[0])+"/cancel", nil)
		},
	}
}

func deleteJobCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "delete JOB", Short: "Delete a job that has ended", Args: command.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := s.Operator()
			if err != nil {
				return err
			}
			if _, err := api.Do(c.Context(), http.MethodDelete, jobPath(args[0]), nil); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return nil
		},
	}
}
