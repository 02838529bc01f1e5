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
	retry := command.New("retry JOB", "Run the next attempt of a failed job",
		s.AdminChange(changeView, http.MethodPost, "/jobs/%s/retry", func() any { return map[string]bool{"override": override} }))
	retry.Flags().BoolVar(&override, "override", false, "also what is not retryable, and beyond its attempts")
	c.AddCommand(listJobsCommand(s), countJobsCommand(s),
		command.New("get JOB", "Show a job with its attempts, events and deliveries (-o yaml)",
			s.AdminShow(jobView, session.At("/jobs/%s"))), retry,
		command.New("cancel JOB", "Cancel a job; one that has ended stays as it is",
			s.AdminChange(changeView, http.MethodPost, "/jobs/%s/cancel", nil)),
		command.New("delete JOB", "Delete a job that has ended", s.AdminChange(output.View{}, http.MethodDelete, "/jobs/%s", nil)))
	return c
}

func listJobsCommand(s *session.Session) *cobra.Command {
	c := command.New("list", "List jobs of all clients", nil)
	return s.AdminPages(c, jobView, 50, filtered(c, "/jobs", ofJobs...))
}

func countJobsCommand(s *session.Session) *cobra.Command {
	c := command.New("count", "Count jobs of all clients", nil)
	c.RunE = s.AdminShow(output.NewView("count", "COUNT:count, MORE:more"), filtered(c, "/jobs/count", ofJobs...))
	return c
}
