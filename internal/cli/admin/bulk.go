package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/operator"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
)

var bulkView = output.NewView("bulk_id",
	"BULK:bulk_id, ACTION:action, STATE:state:state, DONE, SUCCEEDED:succeeded, SKIPPED:skipped, FAILED:failed, "+
		"AGE:created_at:age, OPERATOR:operator:wide, FILTER:filter:wide", func(v any) string {
		return output.Text(output.At(v, "done")) + "/" + output.Text(output.At(v, "total"))
	})

var (
	dryView = output.NewView("changes", "MATCH:count, WOULD CHANGE:changes, MORE:more, LEFT AS THEY ARE", func(v any) string {
		var reasons []string
		left, _ := output.At(v, "left").([]any)
		for _, r := range left {
			reasons = append(reasons, output.Text(output.At(r, "count"))+": "+output.Text(output.At(r, "detail")))
		}
		return strings.Join(reasons, " ")
	})
	itemView = output.NewView("job_id", "JOB:job_id, RESULT:result:state, CODE:code, DETAIL:detail")
)

func bulkCommand(s *session.Session) *cobra.Command {
	c := command.Group(&cobra.Command{Use: "bulk", Short: "Retry, cancel or delete all jobs that match a filter"})
	items := command.New("items BULK", "List the jobs of a bulk operation, with what became of each", nil)
	c.AddCommand(startBulkCommand(s),
		s.AdminPages(command.New("list", "List bulk operations, the newest first", nil), bulkView, 50, session.At("/bulk")),
		command.New("get BULK", "Show how far a bulk operation is", s.AdminShow(bulkView, session.At("/bulk/%s"))),
		s.AdminPages(items, itemView, 100, filtered(items, "/bulk/%s/items", filter{"result", "result", "", "only jobs with this `result`"})),
		command.New("abort BULK", "End a bulk operation where it is", s.AdminChange(bulkView, http.MethodPost, "/bulk/%s/abort", nil)))
	return c
}

// bulkStart is what a bulk operation is asked to do.
type bulkStart struct {
	filter                      session.Request
	all, dryRun, override, wait bool
	rate                        int
}

func startBulkCommand(s *session.Session) *cobra.Command {
	var f bulkStart
	actions := []string{"retry", "cancel", "delete"}
	c := &cobra.Command{
		Use: "start retry|cancel|delete", Short: "Begin a bulk operation; --dry-run only counts",
		ValidArgs: actions, Args: cobra.MatchAll(command.Exactly(1), command.Only(actions...)),
		RunE: s.Admin(func(ctx context.Context, api *operator.Client, p *output.Printer, args []string) error {
			return startBulk(ctx, api, p, args[0], &f)
		}),
	}
	f.filter = filtered(c, "/bulk", ofJobs...)
	c.Flags().BoolVar(&f.all, "all", false, "all jobs, in place of a filter")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "only count what it would change, and say why it leaves the others")
	c.Flags().BoolVar(&f.override, "override", false, "of retries: also what is not retryable, and beyond the attempts")
	c.Flags().IntVar(&f.rate, "rate", 200, "`jobs` a second, at most")
	c.Flags().BoolVarP(&f.wait, "wait", "w", false, "wait for its end, and exit with 1 if a job could not be changed")
	c.Flags().Duration("timeout", 0, "with --wait: for how long; 0: no limit")
	return c
}

func startBulk(ctx context.Context, api *operator.Client, p *output.Printer, action string, f *bulkStart) error {
	_, query, err := f.filter(nil)
	if err != nil {
		return err
	}
	if f.all == (len(query) > 0) {
		return command.Usagef("give a filter such as --state FAILED, or --all (forgerun admin bulk start --help)")
	}
	filter := map[string]any{}
	for name := range query {
		filter[name] = query.Get(name)
	}
	if f.all {
		filter["all"] = true
	}
	body := map[string]any{"action": action, "filter": filter, "dry_run": f.dryRun, "rate": f.rate, "override": f.override}
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
	path := "/bulk/" + url.PathEscape(receipt.BulkID)
	if f.wait {
		return waitForBulk(ctx, api, p, path)
	}
	bulk, err := api.Get(ctx, path, nil)
	if err != nil {
		return err
	}
	return p.One(bulkView, bulk)
}

// pollBulk is how often a bulk operation is asked how far it is.
const pollBulk = 500 * time.Millisecond

func waitForBulk(ctx context.Context, api *operator.Client, p *output.Printer, path string) error {
	var text json.RawMessage
	var bulk client.Bulk
	err := session.Poll(ctx, func() (ended bool, pause time.Duration, err error) {
		if text, err = api.Get(ctx, path, nil); err == nil {
			err = json.Unmarshal(text, &bulk)
		}
		return bulk.Final(), pollBulk, err
	})
	if err == nil {
		err = p.One(bulkView, text)
	}
	if err != nil || bulk.Failed == 0 {
		return err
	}
	return command.Code(command.Failed)
}
