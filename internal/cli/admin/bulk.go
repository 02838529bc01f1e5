package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/operator"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
)

var bulkView = output.View{ID: "bulk_id", Columns: []output.Column{
	{Head: "BULK", Path: "bulk_id"},
	{Head: "ACTION", Path: "action"},
	{Head: "STATE", Path: "state", State: true},
	{Head: "DONE", Show: func(v any) string {
		return output.Text(output.At(v, "done")) + "/" + output.Text(output.At(v, "total"))
	}},
	{Head: "SUCCEEDED", Path: "succeeded"},
	{Head: "SKIPPED", Path: "skipped"},
	{Head: "FAILED", Path: "failed"},
	{Head: "AGE", Path: "created_at", Age: true},
	{Head: "OPERATOR", Path: "operator", Wide: true},
	{Head: "FILTER", Path: "filter", Wide: true},
}}

var (
	dryView  = output.View{ID: "count", Columns: []output.Column{{Head: "WOULD CHANGE", Path: "count"}, {Head: "MORE", Path: "more"}}}
	itemView = output.View{ID: "job_id", Columns: []output.Column{
		{Head: "JOB", Path: "job_id"}, {Head: "RESULT", Path: "result", State: true}, {Head: "CODE", Path: "code"},
		{Head: "DETAIL", Path: "detail"},
	}}
)

func bulkCommand(s *session.Session) *cobra.Command {
	c := command.Group(&cobra.Command{Use: "bulk", Short: "Retry, cancel or delete all jobs that match a filter"})
	c.AddCommand(startBulkCommand(s), listBulkCommand(s), getBulkCommand(s), itemsCommand(s), abortBulkCommand(s))
	return c
}

// bulkStart is what a bulk operation is asked to do.
type bulkStart struct {
	filter
	all, dryRun, override, wait bool
	rate                        int
	timeout                     time.Duration
}

func startBulkCommand(s *session.Session) *cobra.Command {
	var f bulkStart
	actions := []string{"retry", "cancel", "delete"}
	c := &cobra.Command{
		Use: "start retry|cancel|delete", Short: "Begin a bulk operation; --dry-run only counts", ValidArgs: actions,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(actions, args[0]) {
				return command.Usagef("say what to do: retry, cancel or delete (forgerun admin bulk start --help)")
			}
			return nil
		},
		Example: "  forgerun admin bulk start retry --state FAILED --kind CPU_BURST --dry-run\n" +
			"  forgerun admin bulk start cancel --client CLIENT --state QUEUED --wait",
		RunE: func(c *cobra.Command, args []string) error { return startBulk(c.Context(), s, args[0], &f) },
	}
	f.flags(c)
	c.Flags().BoolVar(&f.all, "all", false, "all jobs, in place of a filter")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "only count what matches")
	c.Flags().BoolVar(&f.override, "override", false, "of retries: also what is not retryable, and beyond the attempts")
	c.Flags().IntVar(&f.rate, "rate", 200, "`jobs` a second, at most")
	c.Flags().BoolVarP(&f.wait, "wait", "w", false, "wait for its end, and exit with 1 if a job could not be changed")
	c.Flags().DurationVar(&f.timeout, "timeout", 0, "with --wait: for how long; 0: no limit")
	return c
}

func startBulk(ctx context.Context, s *session.Session, action string, f *bulkStart) error {
	members, err := f.members()
	if err != nil {
		return err
	}
	if f.all == (len(members) > 0) {
		return command.Usagef("give a filter such as --state FAILED, or --all (forgerun admin bulk start --help)")
	}
	var chosen any = members
	if f.all {
		chosen = map[string]bool{"all": true}
	}
	body := map[string]any{"action": action, "filter": chosen, "dry_run": f.dryRun, "rate": f.rate, "override": f.override}
	return with(s, func(api *operator.Client, p *output.Printer) error {
		answer, err := api.Do(ctx, http.MethodPost, "/bulk", body)
		switch {
		case err != nil:
			return err
		case f.dryRun:
			return p.One(dryView, answer)
		}
		var receipt struct {
			BulkID string `json:"bulk_id"`
		}
		if err := json.Unmarshal(answer, &receipt); err != nil {
			return err
		}
		if f.wait {
			return waitForBulk(ctx, api, p, receipt.BulkID, f.timeout)
		}
		bulk, err := api.Get(ctx, bulkPath(receipt.BulkID), nil)
		if err != nil {
			return err
		}
		return p.One(bulkView, bulk)
	})
}

// pollBulk is how often a bulk operation is asked how far it is.
const pollBulk = 500 * time.Millisecond

func waitForBulk(ctx context.Context, api *operator.Client, p *output.Printer, id string, timeout time.Duration) error {
	ctx, cancel := session.Within(ctx, timeout)
	defer cancel()
	for {
		text, err := api.Get(ctx, bulkPath(id), nil)
		if err != nil {
			return session.Explain(ctx, err)
		}
		var bulk struct {
			State  string `json:"state"`
			Failed int    `json:"failed"`
		}
		if err := json.Unmarshal(text, &bulk); err != nil {
			return err
		}
		if bulk.State != "PENDING" && bulk.State != "RUNNING" {
			if err := p.One(bulkView, text); err != nil || bulk.Failed == 0 {
				return err
			}
			return command.Code(command.Failed)
		}
		select {
		case <-time.After(pollBulk):
		case <-ctx.Done():
			return session.Explain(ctx, ctx.Err())
		}
	}
}

func bulkPath(id string) string { return "/bulk/" + url.PathEscape(id) }

func listBulkCommand(s *session.Session) *cobra.Command {
	limit := 50
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List bulk operations, the newest first", Args: command.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error { return pages(c, s, bulkView, "/bulk", nil, limit) },
	}
	c.Flags().IntVar(&limit, "limit", limit, "at most so many; 0: all")
	return c
}

// pages prints a list that has pages.
func pages(c *cobra.Command, s *session.Session, view output.View, path string, members map[string]string, limit int) error {
	return with(s, func(api *operator.Client, p *output.Printer) error {
		all, err := api.List(c.Context(), path, query(members), limit)
		if err != nil {
			return err
		}
		return p.List(view, all)
	})
}

func getBulkCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "get BULK", Short: "Show how far a bulk operation is", Args: command.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return with(s, func(api *operator.Client, p *output.Printer) error {
				bulk, err := api.Get(c.Context(), bulkPath(args[0]), nil)
				if err != nil {
					return err
				}
				return p.One(bulkView, bulk)
			})
		},
	}
}

func itemsCommand(s *session.Session) *cobra.Command {
	result, limit := "", 100
	c := &cobra.Command{
		Use: "items BULK", Short: "List the jobs of a bulk operation, with what became of each", Args: command.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return pages(c, s, itemView, bulkPath(args[0])+"/items", map[string]string{"result": result}, limit)
		},
	}
	c.Flags().StringVar(&result, "result", "", "only jobs with this `result`")
	c.Flags().IntVar(&limit, "limit", limit, "at most so many; 0: all")
	return c
}

func abortBulkCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "abort BULK", Short: "End a bulk operation where it is", Args: command.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return change(c.Context(), s, bulkView, bulkPath(args[0])+"/abort", nil)
		},
	}
}
