package admin

import (
	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/operator"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
)

var queueView = output.View{ID: "client_id", Columns: []output.Column{
	{Head: "CLIENT", Path: "client_id"},
	{Head: "KIND", Path: "work_kind"},
	{Head: "QUEUED", Path: "queued"},
	{Head: "SCHEDULED", Path: "scheduled"},
	{Head: "OLDEST", Path: "oldest_run_at", Age: true},
}}

func queuesCommand(s *session.Session) *cobra.Command {
	client, kind := "", ""
	c := &cobra.Command{
		Use: "queues", Short: "What waits, by client and work kind", Args: command.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			return bounded(c, s, queueView, "/queues", map[string]string{"client_id": client, "kind": kind})
		},
	}
	c.Flags().StringVar(&client, "client", "", "only of the client with this `id`")
	c.Flags().StringVar(&kind, "kind", "", "only this work `kind`")
	return c
}

// bounded prints a list that has no pages, and says if there is more.
func bounded(c *cobra.Command, s *session.Session, view output.View, path string, members map[string]string) error {
	return with(s, func(api *operator.Client, p *output.Printer) error {
		all, more, err := entries(c.Context(), api, path, query(members))
		if err != nil {
			return err
		}
		if more {
			s.Notef("There is more than the service counts.")
		}
		return p.List(view, all)
	})
}

var workerView = output.View{ID: "worker_id", Columns: []output.Column{
	{Head: "WORKER", Path: "worker_id"},
	{Head: "NAME", Path: "name"},
	{Head: "STATE", Path: "state", State: true},
	{Head: "DRAINED", Path: "drained"},
	{Head: "HELD", Path: "held"},
	{Head: "SLOTS", Path: "slots"},
	{Head: "HEARTBEAT", Path: "heartbeat_at", Age: true},
	{Head: "AGE", Path: "started_at", Age: true},
}}

func workersCommand(s *session.Session) *cobra.Command {
	state, limit := "", 50
	c := &cobra.Command{
		Use: "workers", Short: "Worker processes, and how many jobs they hold", Args: command.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			return pages(c, s, workerView, "/workers", map[string]string{"state": state}, limit)
		},
	}
	c.Flags().StringVar(&state, "state", "", "only workers in this `state`: ALIVE, DEAD or STOPPED")
	c.Flags().IntVar(&limit, "limit", limit, "at most so many; 0: all")
	return c
}

var failureView = output.View{ID: "last_job_id", Columns: []output.Column{
	{Head: "COUNT", Path: "count"},
	{Head: "CODE", Path: "code"},
	{Head: "KIND", Path: "work_kind"},
	{Head: "LAST", Path: "last_at", Age: true},
	{Head: "LAST JOB", Path: "last_job_id"},
	{Head: "DETAIL", Path: "detail"},
	{Head: "FIRST", Path: "first_at", Age: true, Wide: true},
}}

func failuresCommand(s *session.Session) *cobra.Command {
	members := map[string]string{}
	var client, kind, code, since, before string
	c := &cobra.Command{
		Use: "failures", Short: "Failed jobs in groups of code, work kind and detail", Args: command.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			members["client_id"], members["kind"], members["code"] = client, kind, code
			if err := times(members, since, before); err != nil {
				return err
			}
			return bounded(c, s, failureView, "/failures", members)
		},
	}
	c.Flags().StringVar(&client, "client", "", "only of the client with this `id`")
	c.Flags().StringVar(&kind, "kind", "", "only this work `kind`")
	c.Flags().StringVar(&code, "code", "", "only this `code`")
	c.Flags().StringVar(&since, "since", "24h", "only what ended at this `time` or later: RFC 3339, or how long ago")
	c.Flags().StringVar(&before, "before", "", "only what ended before this `time`")
	return c
}
