// Package admin has the commands for operators, on the operator API of any process' admin listener.
package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
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
		Example: "  forgerun admin jobs list --state FAILED\n  forgerun admin failures --since 24h\n" +
			"  forgerun admin bulk start retry --state FAILED --kind CPU_BURST --dry-run",
	}))
	c.AddCommand(jobsCommand(s), queuesCommand(s), workersCommand(s), failuresCommand(s), bulkCommand(s),
		pausesCommand(s), pauseCommand(s), drainCommand(s), resumeCommand(s))
	return c
}

// with gives do what every command needs.
func with(s *session.Session, do func(*operator.Client, *output.Printer) error) error {
	api, err := s.Operator()
	if err != nil {
		return err
	}
	printer, err := s.Printer()
	if err != nil {
		return err
	}
	return do(api, printer)
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

// members are the filters that are set, as the operator API names them.
func (f *filter) members() (map[string]string, error) {
	all := map[string]string{
		"state": f.state, "kind": f.kind, "type": f.jobType, "client_id": f.client, "batch_id": f.batch,
		"correlation_id": f.correlation, "failure_code": f.code,
	}
	if err := times(all, f.since, f.before); err != nil {
		return nil, err
	}
	for name, value := range all {
		if value == "" {
			delete(all, name)
		}
	}
	return all, nil
}

// times adds from and to.
func times(all map[string]string, since, before string) error {
	for name, text := range map[string]string{"from": since, "to": before} {
		at, err := jobs.Ago(text, time.Now())
		if err != nil {
			return command.Usagef("--since and --before: %w", err)
		}
		if !at.IsZero() {
			all[name] = at.Format(time.RFC3339Nano)
		}
	}
	return nil
}

func query(members map[string]string) url.Values {
	values := url.Values{}
	for name, value := range members {
		if value != "" {
			values.Set(name, value)
		}
	}
	return values
}

// change sends a change, and prints the answer.
func change(ctx context.Context, s *session.Session, view output.View, path string, body any) error {
	return with(s, func(api *operator.Client, p *output.Printer) error {
		answer, err := api.Do(ctx, http.MethodPost, path, body)
		if err != nil {
			return err
		}
		return p.One(view, answer)
	})
}

// entries reads a list that has no pages.
func entries(ctx context.Context, api *operator.Client, path string, values url.Values) (all []any, more bool, err error) {
	text, err := api.Get(ctx, path, values)
	if err != nil {
		return nil, false, err
	}
	var list struct {
		Data []json.RawMessage `json:"data"`
		More bool              `json:"more"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, false, err
	}
	for _, entry := range list.Data {
		all = append(all, entry)
	}
	return all, list.More, nil
}
