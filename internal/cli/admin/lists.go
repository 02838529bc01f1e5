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

var queueView = output.NewView("client_id",
	"CLIENT:client_id, KIND:work_kind, QUEUED:queued, SCHEDULED:scheduled, OLDEST:oldest_run_at:age")

func queuesCommand(s *session.Session) *cobra.Command {
	c := command.New("queues", "What waits, by client and work kind", nil)
	c.RunE = s.AdminList(queueView, filtered(c, "/queues",
		filter{"client", "client_id", "", "only of the client with this `id`"}, filter{"kind", "kind", "", "only this work `kind`"}))
	return c
}

var workerView = output.NewView("worker_id",
	"WORKER:worker_id, NAME:name, STATE:state:state, DRAINED:drained, HELD:held, SLOTS:slots, HEARTBEAT:heartbeat_at:age, "+
		"AGE:started_at:age")

func workersCommand(s *session.Session) *cobra.Command {
	c := command.New("workers", "Worker processes, and how many jobs they hold", nil)
	return s.AdminPages(c, workerView, 50, filtered(c, "/workers",
		filter{"state", "state", "", "only workers in this `state`: ALIVE, DEAD or STOPPED"}))
}

var failureView = output.NewView("last_job_id",
	"COUNT:count, CODE:code, KIND:work_kind, LAST:last_at:age, LAST JOB:last_job_id, DETAIL:detail, FIRST:first_at:age:wide")

func failuresCommand(s *session.Session) *cobra.Command {
	c := command.New("failures", "Failed jobs in groups of code, work kind and detail", nil)
	c.RunE = s.AdminList(failureView, filtered(c, "/failures",
		filter{"client", "client_id", "", "only of the client with this `id`"},
		filter{"kind", "kind", "", "only this work `kind`"},
		filter{"code", "code", "", "only this `code`"},
		filter{"since", "from", "24h", "only what ended at this `time` or later: RFC 3339, or how long ago"},
		filter{"before", "to", "", "only what ended before this `time`"}))
	return c
}

var auditView = output.NewView("audit_id",
	"AT:at:age, OPERATOR:operator, ACTION:action, TARGET:target_id, STATUS:status, TYPE:target_type:wide, "+
		"DETAIL:detail:wide")

func auditCommand(s *session.Session) *cobra.Command {
	c := command.New("audit", "What operators did, the newest first", nil)
	return s.AdminPages(c, auditView, 50, filtered(c, "/audit",
		filter{"operator", "operator", "", "only what the operator with this `name` did"},
		filter{"action", "action", "", "only this `action`, such as cancel_job"},
		filter{"target", "target_id", "", "only what was done to the thing with this `id`"},
		filter{"since", "from", "", "only what was done at this `time` or later: RFC 3339, or how long ago"}))
}

var pauseView = output.NewView("pause_id",
	"PAUSE:pause_id, SCOPE:scope, TARGET:target, MODE:mode:state, OPERATOR:operator, AGE:created_at:age, REASON:reason")

func pausesCommand(s *session.Session) *cobra.Command {
	return command.New("pauses", "What operators have stopped", s.AdminList(pauseView, session.At("/pauses")))
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
	return command.New("resume PAUSE", "End a pause or a drain, by the id that \"admin pauses\" shows",
		s.Admin(func(ctx context.Context, api *operator.Client, _ *output.Printer, args []string) error {
			_, err := api.Do(ctx, http.MethodDelete, "/pauses/"+url.PathEscape(args[0]), nil)
			if err == nil {
				s.Notef("It goes on.")
			}
			return err
		}))
}
