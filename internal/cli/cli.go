// Package cli is the command line of those who use and operate ForgeRun. It is an outside client: it knows the service through
// package client and the operator API, and shares no code with it.
package cli

import (
	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/accounts"
	"github.com/forgerun/forgerun/internal/cli/admin"
	"github.com/forgerun/forgerun/internal/cli/jobs"
	"github.com/forgerun/forgerun/internal/cli/schedules"
	"github.com/forgerun/forgerun/internal/cli/session"
	"github.com/forgerun/forgerun/internal/cli/webhooks"
)

// The groups of commands in the help text.
const (
	GroupUse     = "use"
	GroupOperate = "operate"
)

// Add adds the commands to root, with their groups, and those about webhooks to the command of that name, which exists.
func Add(root, webhooksCommand *cobra.Command, s *session.Session) {
	root.AddGroup(&cobra.Group{ID: GroupUse, Title: "Use the service:"}, &cobra.Group{ID: GroupOperate, Title: "Operate the service:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			explained(c)
			root.AddCommand(c)
		}
	}
	add(GroupUse, jobs.Command(s), jobs.BatchCommand(s), schedules.Command(s), jobs.EventsCommand(s), profilesCommand(s))
	add(GroupOperate, admin.Command(s), accounts.ClientsCommand(s), accounts.KeysCommand(s), openCommand(s))
	for _, c := range webhooks.Commands(s) {
		explained(c)
		webhooksCommand.AddCommand(c)
	}
	root.AddCommand(topics()...)
}

// explained has the errors of c, and of all below it, say what to do about them.
func explained(c *cobra.Command) {
	for _, below := range c.Commands() {
		explained(below)
	}
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error { return session.Explain(c.Context(), run(c, args)) }
	}
}
