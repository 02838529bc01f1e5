// Package admin has the commands for operators, on the operator API of any process' admin listener.
package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/jobs"
	"github.com/forgerun/forgerun/internal/cli/operator"
	"github.com/forgerun/forgerun/internal/cli/output"
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

// filter chooses jobs, as the lists and bulk operations of the operator API do.
type filter struct {
	state, kind, jobType, client, batch, correlation, code, since, before string
}

func (f *filter) flags(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.state, "state", "", "only jobs in this `state`")
	flags.StringVar(&f.kind, "kind", "", "only jobs of this work `kind`")
	flags.StringVar(&f.jobType, "type", "", "only jobs of this `type`")
	flags.StringVar(&f.client, "client", "", "only jobs of the client with this `id`")
	flags.StringVar(&f.batch, "batch", "", "only jobs of the batch with this `id`")
	flags.StringVar(&f.correlation, "correlation-id", "", "only jobs with this `id` of their client's")
	flags.StringVar(&f.code, "failure-code", "", "only FAILED jobs with this `code`")
	flags.StringVar(&f.since, "since", "", "only jobs created at this `time` or later: RFC 3339, or how long ago, as in 2h")
	flags.StringVar(&f.before, "before", "", "only jobs created before this `time`")
}

// query is what the operator API is asked with: the filters that are set.
func (f *filter) query() (url.Values, error) {
	q := values("state", f.state, "kind", f.kind, "type", f.jobType, "client_id", f.client, "batch_id", f.batch,
		"correlation_id", f.correlation, "failure_code", f.code)
	return q, times(q, f.since, f.before)
}

// values are names and values in turn, without what is not set.
func values(pairs ...string) url.Values {
	q := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			q.Set(pair[0], pair[1])
		}
	}
	return q
}

// times adds from and to.
func times(q url.Values, since, before string) error {
	for name, text := range map[string]string{"from": since, "to": before} {
		at, err := jobs.Ago(text, time.Now())
		if err != nil {
			return command.Usagef("--since and --before: %w", err)
		}
		if !at.IsZero() {
			q.Set(name, at.Format(time.RFC3339Nano))
		}
	}
	return nil
}

// get has a command print what is at a path, with the command's argument in it.
func get(s *session.Session, v output.View, path string) func(*cobra.Command, []string) error {
	return s.Admin(func(ctx context.Context, api *operator.Client, p *output.Printer, args []string) error {
		answer, err := api.Get(ctx, fmt.Sprintf(path, url.PathEscape(args[0])), nil)
		if err != nil {
			return err
		}
		return p.One(v, answer)
	})
}

// change has a command ask for a change at a path, with the command's argument in it, and print the answer. body gives nil for none.
func change(s *session.Session, v output.View, path string, body func() any) func(*cobra.Command, []string) error {
	return s.Admin(func(ctx context.Context, api *operator.Client, p *output.Printer, args []string) error {
		answer, err := api.Do(ctx, http.MethodPost, fmt.Sprintf(path, url.PathEscape(args[0])), body())
		if err != nil {
			return err
		}
		return p.One(v, answer)
	})
}

func nothing() any { return nil }

// request is where a list is, and with which filters it is asked for.
type request func(args []string) (path string, query url.Values, err error)

// pages completes a command that prints a list with pages.
func pages(s *session.Session, c *cobra.Command, v output.View, limit int, ask request) *cobra.Command {
	c.RunE = s.Admin(func(ctx context.Context, api *operator.Client, p *output.Printer, args []string) error {
		path, query, err := ask(args)
		if err != nil {
			return err
		}
		return session.List(p, v, api.List(ctx, path, query, limit), limit)
	})
	return session.Limit(c, &limit)
}

// bounded completes a command that prints a list without pages, and says if there is more.
func bounded(s *session.Session, c *cobra.Command, v output.View, ask request) *cobra.Command {
	c.RunE = s.Admin(func(ctx context.Context, api *operator.Client, p *output.Printer, args []string) error {
		path, query, err := ask(args)
		if err != nil {
			return err
		}
		text, err := api.Get(ctx, path, query)
		if err != nil {
			return err
		}
		var list struct {
			Data []json.RawMessage `json:"data"`
			More bool              `json:"more"`
		}
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
		if list.More {
			s.Notef("There is more than the service counts.")
		}
		return p.List(v, output.Items(list.Data))
	})
	return c
}
