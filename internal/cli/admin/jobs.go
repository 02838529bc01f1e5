package admin

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
)

var jobView = output.NewView("job_id",
	"JOB:job_id, CLIENT:client_id, STATE:state:state, KIND:work_kind, ATTEMPT:attempt, AGE:created_at:age, "+
		"CODE:failure_code, WAITS:waiting.detail:wide, DETAIL:failure.detail:wide, WORKER:worker_id:wide, "+
		"CORRELATION:correlation_id:wide")

var changeView = output.NewView("job_id", "JOB:job_id, STATE:state:state, ATTEMPT:attempt, CHANGED:changed")

func jobsCommand(s *session.Session) *cobra.Command {
	c := command.Group(&cobra.Command{Use: "jobs", Aliases: []string{"job"}, Short: "Jobs of all clients"})
	override := false
	retry := &cobra.Command{
		Use: "retry JOB", Short: "Run the next attempt of a failed job", Args: command.Exactly(1),
		RunE: s.AdminChange(changeView, http.MethodPost, "/jobs/%s/retry", func() any { return map[string]bool{"override": override} }),
	}
	retry.Flags().BoolVar(&override, "override", false, "also what is not retryable, and beyond its attempts")
	c.AddCommand(listJobsCommand(s), countJobsCommand(s),
		&cobra.Command{
			Use: "get JOB", Short: "Show a job with its attempts, events and deliveries (-o yaml)", Args: command.Exactly(1),
			RunE: s.AdminShow(jobView, session.At("/jobs/%s")),
		}, retry,
		&cobra.Command{
			Use: "cancel JOB", Short: "Cancel a job; one that has ended stays as it is", Args: command.Exactly(1),
			RunE: s.AdminChange(changeView, http.MethodPost, "/jobs/%s/cancel", nil),
		},
		&cobra.Command{
			Use: "delete JOB", Short: "Delete a job that has ended", Args: command.Exactly(1),
			RunE: s.AdminChange(output.View{}, http.MethodDelete, "/jobs/%s", nil),
		})
	return c
}

func listJobsCommand(s *session.Session) *cobra.Command {
	c := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List jobs of all clients", Args: command.Exactly(0)}
	return s.AdminPages(c, jobView, 50, filtered(c, "/jobs", ofJobs...))
}

func countJobsCommand(s *session.Session) *cobra.Command {
	c := &cobra.Command{Use: "count", Short: "Count jobs of all clients", Args: command.Exactly(0)}
	c.RunE = s.AdminShow(output.NewView("count", "COUNT:count, MORE:more"), filtered(c, "/jobs/count", ofJobs...))
	return c
}
