package jobs

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
)

var kindView = output.NewView("work_kind", "KIND:work_kind, DOES:does")

// KindsCommand is "kinds".
func KindsCommand(s *session.Session) *cobra.Command {
	return s.Plain(&cobra.Command{
		Use: "kinds", Short: "The catalogue of work kinds: what jobs do", Args: command.Exactly(0),
		Long: "Lists the work kinds. Durations are those at FORGERUN_TIME_SCALE=1; 'forgerun dev' runs at a tenth.",
		RunE: func(*cobra.Command, []string) error {
			p, err := s.Printer()
			if err != nil {
				return err
			}
			return p.List(kindView, output.Items(client.Kinds))
		},
	})
}

// completeKinds completes an argument that is a work kind.
func completeKinds(_ *cobra.Command, args []string, begun string) (names []string, _ cobra.ShellCompDirective) {
	for _, k := range client.Kinds {
		if len(args) == 0 && strings.HasPrefix(k.Name, strings.ToUpper(begun)) {
			names = append(names, k.Name+"\t"+k.Does)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeIDs completes arguments that are jobs: the latest ones, in these states, or in all.
func completeIDs(s *session.Session, states ...string) cobra.CompletionFunc {
	const most = 50
	return func(c *cobra.Command, _ []string, begun string) (ids []string, _ cobra.ShellCompDirective) {
		api, err := s.Client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), 2*time.Second)
		defer cancel()
		if len(states) == 0 {
			states = []string{""}
		}
		for _, state := range states {
			for j, err := range api.Jobs(ctx, client.JobFilter{State: state}) {
				if err != nil || len(ids) == most {
					break
				}
				if strings.HasPrefix(j.JobID, begun) {
					ids = append(ids, j.JobID+"\t"+j.WorkKind+", "+j.State)
				}
			}
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}
