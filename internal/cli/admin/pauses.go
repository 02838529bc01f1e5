package admin

import (
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
	return &cobra.Command{
		Use: "pauses", Short: "What operators have stopped", Args: command.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error { return bounded(c, s, pauseView, "/pauses", nil) },
	}
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
	c.RunE = func(c *cobra.Command, args []string) error {
		if strings.TrimSpace(reason) == "" {
			return command.Usagef("say why with --reason: others read it in the audit log")
		}
		scope, target, _ := scopeOf(name, scopes, args) // checked
		body := map[string]string{"scope": scope, "mode": mode, "reason": reason}
		if target != "" {
			body["target"] = target
		}
		return with(s, func(api *operator.Client, p *output.Printer) error {
			answer, err := api.Do(c.Context(), http.MethodPost, "/pauses", body)
			if err != nil {
				return err
			}
			return p.One(pauseView, answer)
		})
	}
	c.Flags().StringVar(&reason, "reason", "", "why; others read it in the audit log")
	return c
}

func pauseCommand(s *session.Session) *cobra.Command {
	return stopCommand(s, &cobra.Command{
		Use: "pause all|kind|client [TARGET]", Short: "Start no more jobs of a kind, of a client, or at all",
		Long: "Starts no more jobs of a kind, of a client, or at all, until \"forgerun admin resume\". What runs goes on, submissions are\n" +
			"accepted, and what waits keeps its place. It holds in all processes at once, and survives restarts and an emptied Redis.",
		Example: "  forgerun admin pause kind CPU_BURST --reason \"the database is slow\"\n  forgerun admin pause all --reason \"release 7\"",
	}, "PAUSE", "all", "kind", "client")
}

func drainCommand(s *session.Session) *cobra.Command {
	return stopCommand(s, &cobra.Command{
		Use: "drain all|kind|client|worker [TARGET]", Short: "Accept no more jobs of a kind, of a client, or at all; or have a worker take none",
		Long: "Accepts no more submissions of a kind, of a client, or at all, until \"forgerun admin resume\"; what was accepted is run.\n" +
			"A worker that is drained takes no more jobs, and ends those that it has.",
		Example: "  forgerun admin drain all --reason \"moving house\"\n  forgerun admin drain worker WORKER --reason \"its host is restarted\"",
	}, "DRAIN", "all", "kind", "client", "worker")
}

func resumeCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "resume PAUSE", Short: "End a pause or a drain, by the id that \"admin pauses\" shows", Args: command.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return with(s, func(api *operator.Client, _ *output.Printer) error {
				_, err := api.Do(c.Context(), http.MethodDelete, "/pauses/"+url.PathEscape(args[0]), nil)
				if err == nil {
					s.Notef("It goes on.")
				}
				return err
			})
		},
	}
}
