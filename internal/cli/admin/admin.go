// Package admin has the commands for operators, on the operator API of any process' admin listener.
package admin

import (
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/jobs"
	"github.com/forgerun/forgerun/internal/cli/session"
)

// Command is "admin" with what is below it.
func Command(s *session.Session) *cobra.Command {
	c := s.ForOperators(command.Group(&cobra.Command{
		Use: "admin", Short: "See and change jobs of all clients, queues, workers and failures",
		Long: "See and change jobs of all clients, queues, workers and failures, on the operator API of any process' admin listener.\n" +
			"The token is that of FORGERUN_ADMIN_TOKEN; forgerun dev needs none on loopback.",
	}))
	c.AddCommand(jobsCommand(s), queuesCommand(s), workersCommand(s), failuresCommand(s), auditCommand(s), bulkCommand(s),
		pausesCommand(s), pauseCommand(s), drainCommand(s), resumeCommand(s))
	return c
}

// filter is a flag that narrows down what the operator API is asked for.
type filter struct{ flag, parameter, initial, help string }

// ofJobs are those of lists and bulk operations of jobs.
var ofJobs = []filter{
	{"state", "state", "", "only jobs in this `state`"},
	{"kind", "kind", "", "only jobs of this work `kind`"},
	{"type", "type", "", "only jobs of this `type`"},
	{"client", "client_id", "", "only jobs of the client with this `id`"},
	{"batch", "batch_id", "", "only jobs of the batch with this `id`"},
	{"correlation-id", "correlation_id", "", "only jobs with this `id` of their client's"},
	{"failure-code", "failure_code", "", "only FAILED jobs with this `code`"},
	{"since", "from", "", "only jobs created at this `time` or later: RFC 3339, or how long ago, as in 2h"},
	{"before", "to", "", "only jobs created before this `time`"},
}

// filtered adds filters to a command, and gives the request at a path with those that are set.
func filtered(c *cobra.Command, path string, filters ...filter) session.Request {
	for _, f := range filters {
		c.Flags().String(f.flag, f.initial, f.help)
	}
	return func(args []string) (string, url.Values, error) {
		path, query, _ := session.At(path)(args)
		for _, f := range filters {
			text, _ := c.Flags().GetString(f.flag) // it was added
			if text != "" && (f.parameter == "from" || f.parameter == "to") {
				at, err := jobs.Ago(text, time.Now())
				if err != nil {
					return "", nil, command.Usagef("--%s: %w", f.flag, err)
				}
				text = at.Format(time.RFC3339Nano)
			}
			if f.parameter == "state" {
				text = strings.ToUpper(text)
			}
			if text != "" {
				query.Set(f.parameter, text)
			}
		}
		return path, query, nil
	}
}
