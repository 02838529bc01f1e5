package admin

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

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
	c := &cobra.Command{Use: "queues", Short: "What waits, by client and work kind", Args: command.Exactly(0)}
	c.Flags().StringVar(&client, "client", "", "only of the client with this `id`")
	c.Flags().StringVar(&kind, "kind", "", "only this work `kind`")
	return bounded(s, c, queueView, func([]string) (string, url.Values, error) {
		return "/queues", values("client_id", client, "kind", kind), nil
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
	state := ""
	c := &cobra.Command{Use: "workers", Short: "Worker processes, and how many jobs they hold", Args: command.Exactly(0)}
	c.Flags().StringVar(&state, "state", "", "only workers in this `state`: ALIVE, DEAD or STOPPED")
	return pages(s, c, workerView, 50, func([]string) (string, url.Values, error) { return "/workers", values("state", state), nil })
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
	var client, kind, code, since, before string
	c := &cobra.Command{Use: "failures", Short: "Failed jobs in groups of code, work kind and detail", Args: command.Exactly(0)}
	c.Flags().StringVar(&client, "client", "", "only of the client with this `id`")
	c.Flags().StringVar(&kind, "kind", "", "only this work `kind`")
	c.Flags().StringVar(&code, "code", "", "only this `code`")
	c.Flags().StringVar(&since, "since", "24h", "only what ended at this `time` or later: RFC 3339, or how long ago")
	c.Flags().StringVar(&before, "before", "", "only what ended before this `time`")
	return bounded(s, c, failureView, func([]string) (string, url.Values, error) {
		query := values("client_id", client, "kind", kind, "code", code)
		return "/failures", query, times(query, since, before)
	})
}

var auditView = output.View{ID: "audit_id", Columns: []output.Column{
	{Head: "AT", Path: "at", Age: true},
	{Head: "OPERATOR", Path: "operator"},
	{Head: "ACTION", Path: "action"},
	{Head: "TARGET", Path: "target_id"},
	{Head: "STATUS", Path: "status"},
	{Head: "TYPE", Path: "target_type", Wide: true},
	{Head: "DETAIL", Path: "detail", Wide: true},
}}

func auditCommand(s *session.Session) *cobra.Command {
	var operator, action, target, since string
	c := &cobra.Command{
		Use: "audit", Short: "What operators did, the newest first", Args: command.Exactly(0),
	}
	c.Flags().StringVar(&operator, "operator", "", "only what the operator with this `name` did")
	c.Flags().StringVar(&action, "action", "", "only this `action`, such as cancel_job")
	c.Flags().StringVar(&target, "target", "", "only what was done to the thing with this `id`")
	c.Flags().StringVar(&since, "since", "", "only what was done at this `time` or later: RFC 3339, or how long ago")
	return pages(s, c, auditView, 50, func([]string) (string, url.Values, error) {
		query := values("operator", operator, "action", action, "target_id", target)
		return "/audit", query, times(query, since, "")
	})
}

var pauseView = output.View{ID: "pause_id", Columns: []output.Column{
	{Head: "PAUSE", Path: "pause_id"},
	{Head: "SCOPE", Path: "scope"},
	{Head: "TARGET", Path: "target"},
	{Head: "MODE", Path: "mode", State: true},
	{Head: "OPERATOR", Path: "operator"},
	{Head: "AGE", Path: "created_at", Age: true},
	{Head: "REASON", Path: "reason"},
}}

func pausesCommand(s *session.Session) *cobra.Command {
	c := &cobra.Command{Use: "pauses", Short: "What operators have stopped", Args: command.Exactly(0)}
	return bounded(s, c, pauseView, func([]string) (string, url.Values, error) { return "/pauses", nil, nil })
}

// scopeOf reads of what "pause" or "drain" is.
func scopeOf(name string, scopes, args []string) (scope, target string, err error) {
	known := len(args) > 0 && slices.Contains(scopes, args[0])
	switch {
	case known && args[0] == "all" && len(args) == 1:
		return "ALL", "", nil
	case known && args[0] != "all" && len(args) == 2:
		return strings.ToUpper(args[0]), args[1], nil
	}
	return "", "", command.Usagef("say what to %s, such as all or kind CPU_BURST (forgerun admin %s --help)", name, name)
}

// stopCommand completes "pause" or "drain", which stops one of the scopes.
func stopCommand(s *session.Session, c *cobra.Command, mode string, scopes ...string) *cobra.Command {
	reason, name := "", c.Name()
	c.ValidArgs = scopes
	c.Args = func(_ *cobra.Command, args []string) error { _, _, err := scopeOf(name, scopes, args); return err }
	c.RunE = s.Admin(func(ctx context.Context, api *operator.Client, p *output.Printer, args []string) error {
		if strings.TrimSpace(reason) == "" {
			return command.Usagef("say why with --reason: others read it in the audit log")
		}
		scope, target, _ := scopeOf(name, scopes, args) // checked
		body := map[string]string{"scope": scope, "mode": mode, "reason": reason}
		if target != "" {
			body["target"] = target
		}
		answer, err := api.Do(ctx, http.MethodPost, "/pauses", body)
		if err != nil {
			return err
		}
		return p.One(pauseView, answer)
	})
	c.Flags().StringVar(&reason, "reason", "", "why; others read it in the audit log")
	return c
}

func pauseCommand(s *session.Session) *cobra.Command {
	return stopCommand(s, &cobra.Command{
		Use: "pause all|kind|client [TARGET]", Short: "Start no more jobs of a kind, of a client, or at all",
		Long: "Starts no more jobs of a kind, of a client, or at all, until \"forgerun admin resume\". What runs goes on, submissions are\n" +
			"accepted, and what waits keeps its place. It holds in all processes at once, and survives restarts and an emptied Redis.",
	}, "PAUSE", "all", "kind", "client")
}

func drainCommand(s *session.Session) *cobra.Command {
	return stopCommand(s, &cobra.Command{
		Use: "drain all|kind|client|worker [TARGET]", Short: "Accept no more jobs of a kind, of a client, or at all; or have a worker take none",
		Long: "Accepts no more submissions of a kind, of a client, or at all, until \"forgerun admin resume\"; what was accepted is run.\n" +
			"A worker that is drained takes no more jobs, and ends those that it has.",
	}, "DRAIN", "all", "kind", "client", "worker")
}

func resumeCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "resume PAUSE", Short: "End a pause or a drain, by the id that \"admin pauses\" shows", Args: command.Exactly(1),
		RunE: s.Admin(func(ctx context.Context, api *operator.Client, _ *output.Printer, args []string) error {
			_, err := api.Do(ctx, http.MethodDelete, "/pauses/"+url.PathEscape(args[0]), nil)
			if err == nil {
				s.Notef("It goes on.")
			}
			return err
		}),
	}
}
