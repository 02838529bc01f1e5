package cli

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
)

var (
	anyJobView = output.NewView("JOB:job_id, CLIENT:client_id, STATE:state:state, KIND:work_kind, ATTEMPT:attempt, AGE:created_at:age, " +
		"CODE:failure_code, WAITS:waiting.detail:wide, DETAIL:failure.detail:wide, WORKER:worker_id:wide, CORRELATION:correlation_id:wide")
	changeView = output.NewView("JOB:job_id, STATE:state:state, ATTEMPT:attempt, CHANGED:changed")
	countView  = output.NewView("COUNT:count, MORE:more")
	queueView  = output.NewView("CLIENT:client_id, KIND:work_kind, QUEUED:queued, SCHEDULED:scheduled, OLDEST:oldest_run_at:age")
	workerView = output.NewView("WORKER:worker_id, NAME:name, STATE:state:state, DRAINED:drained, HELD:held, SLOTS:slots, " +
		"HEARTBEAT:heartbeat_at:age, AGE:started_at:age")
	failureView = output.NewView("COUNT:count, CODE:code, KIND:work_kind, LAST:last_at:age, LAST JOB:last_job_id, DETAIL:detail, " +
		"FIRST:first_at:age:wide")
	auditView = output.NewView("AT:at:age, OPERATOR:operator, ACTION:action, TARGET:target_id, STATUS:status, TYPE:target_type:wide, " +
		"DETAIL:detail:wide")
	pauseView = output.NewView("PAUSE:pause_id, SCOPE:scope, TARGET:target, MODE:mode:state, OPERATOR:operator, AGE:created_at:age, " +
		"REASON:reason")
	bulkView = output.NewView("BULK:bulk_id, ACTION:action, STATE:state:state, DONE, SUCCEEDED:succeeded, SKIPPED:skipped, FAILED:failed, "+
		"AGE:created_at:age, OPERATOR:operator:wide, FILTER:filter:wide", func(v any) string {
		return output.Text(output.At(v, "done")) + "/" + output.Text(output.At(v, "total"))
	})
	dryView = output.NewView("MATCH:count, WOULD CHANGE:changes, MORE:more, UNCHANGED", func(v any) string {
		var reasons []string
		left, _ := output.At(v, "left").([]any)
		for _, r := range left {
			reasons = append(reasons, output.Text(output.At(r, "count"))+": "+output.Text(output.At(r, "detail")))
		}
		return strings.Join(reasons, " ")
	})
	bulkItemView = output.NewView("JOB:job_id, RESULT:result:state, CODE:code, DETAIL:detail")
)

// jobFilters are the flags that filter lists of jobs and bulk operations.
var jobFilters = []param{
	{"state", "state", "", "only jobs in this `state`"},
	{"kind", "kind", "", "only jobs of this work `kind`"},
	{"type", "type", "", "only jobs of this `type`"},
	{"client", "client_id", "", "only jobs of the client with this `id`"},
	{"batch", "batch_id", "", "only jobs of the batch with this `id`"},
	{"correlation-id", "correlation_id", "", "only jobs with this correlation `id`"},
	{"failure-code", "failure_code", "", "only FAILED jobs with this `code`"},
	{"since", "from", "", "only jobs created at this `time` or later: RFC 3339, or how long ago, as in 2h"},
	{"before", "to", "", "only jobs created before this `time`"},
}

func (s *Shell) adminCommand() *cobra.Command {
	ofClient := param{"client", "client_id", "", "only rows of the client with this `id`"}
	ofKind := param{"kind", "kind", "", "only rows of this work `kind`"}
	c := s.group("admin", "Manage the jobs, queues and failures of all clients, and the workers",
		s.adminJobs(),
		s.cmd("queues", "Count waiting jobs by client and work kind", whole(queueView, adminPath+"/queues", ofClient, ofKind)),
		s.cmd("workers", "List worker processes and how many jobs they hold", list(workerView, adminPath+"/workers", 50,
			param{"state", "state", "", "only workers in this `state`: ALIVE, DEAD or STOPPED"})),
		s.cmd("failures", "Group failed jobs by code, work kind and detail", whole(failureView, adminPath+"/failures",
			ofClient, ofKind, param{"code", "code", "", "only failures with this `code`"},
			param{"since", "from", "24h", "only jobs that failed at this `time` or later: RFC 3339, or how long ago"},
			param{"before", "to", "", "only jobs that failed before this `time`"})),
		s.cmd("audit", "Show the audit log of operators, newest first", list(auditView, adminPath+"/audit", 50,
			param{"operator", "operator", "", "only actions of the operator with this `name`"},
			param{"action", "action", "", "only actions of this kind: an `action` such as cancel_job"},
			param{"target", "target_id", "", "only actions on the target with this `id`"},
			param{"since", "from", "", "only actions at this `time` or later: RFC 3339, or how long ago"})),
		s.bulk(),
		s.cmd("pauses", "List pauses and drains", whole(pauseView, adminPath+"/pauses")),
		s.pauseOrDrain("pause all|kind|client [TARGET]", "PAUSE", "Stop starting all jobs, or those of a kind or a client"),
		s.pauseOrDrain("drain all|kind|client|worker [TARGET]", "DRAIN",
			"Stop accepting all jobs, or those of a kind or a client; or stop a worker from taking jobs"),
		s.cmd("resume PAUSE", "End a pause or a drain by its id (see \"admin pauses\")", withoutFlags(func(c *call) error {
			_, err := c.admin(http.MethodDelete, "/pauses/%s", nil)
			if err == nil {
				c.notef("Resumed.")
			}
			return err
		})))
	return s.forOperators(c)
}

func (s *Shell) adminJobs() *cobra.Command {
	retry := func(f *pflag.FlagSet) run {
		override := f.Bool("override", false, "also retry jobs that are not retryable or have no attempts left")
		return func(c *call) error {
			return c.changeAdmin(changeView, http.MethodPost, "/jobs/%s/retry", map[string]bool{"override": *override})
		}
	}
	return s.group("jobs job", "Jobs of all clients",
		s.cmd("list", "List jobs of all clients", list(anyJobView, adminPath+"/jobs", 50, jobFilters...)),
		s.cmd("count", "Count jobs of all clients", show(countView, adminPath+"/jobs/count", jobFilters...)),
		s.cmd("get JOB", "Show a job; -o json has its attempts, events and deliveries", show(anyJobView, adminPath+"/jobs/%s")),
		s.cmd("retry JOB", "Retry a failed job", retry),
		s.cmd("cancel JOB", "Cancel a job; a finished job does not change", changeAdmin(changeView, http.MethodPost, "/jobs/%s/cancel")),
		s.cmd("delete JOB", "Delete a finished job", changeAdmin(nil, http.MethodDelete, "/jobs/%s")))
}

// pauseOrDrain makes the command "pause" or "drain". In `use`, the allowed scopes follow the name, as in "pause all|kind TARGET".
func (s *Shell) pauseOrDrain(use, mode, short string) *cobra.Command {
	name, rest, _ := strings.Cut(use, " ")
	words, _, _ := strings.Cut(rest, " ")
	c := s.cmd(use, short, func(f *pflag.FlagSet) run {
		reason := f.String("reason", "", "reason, shown in the audit log")
		return func(c *call) error {
			if strings.TrimSpace(*reason) == "" {
				return command.Usagef("--reason is required: it is shown in the audit log")
			}
			body := map[string]string{"scope": strings.ToUpper(c.args[0]), "mode": mode, "reason": *reason}
			if len(c.args) > 1 {
				body["target"] = c.args[1]
			}
			return c.changeAdmin(pauseView, http.MethodPost, "/pauses", body)
		}
	})
	c.ValidArgs = strings.Split(words, "|")
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) > 0 && slices.Contains(c.ValidArgs, args[0]) && len(args) == map[bool]int{true: 1, false: 2}[args[0] == "all"] {
			return nil
		}
		return command.Usagef("name the target to %s, such as all or kind CPU_BURST (%s --help)", name, c.CommandPath())
	}
	return c
}

func (s *Shell) bulk() *cobra.Command {
	start := s.cmd("start retry|cancel|delete", "Start a bulk operation; --dry-run only counts", startBulk)
	start.ValidArgs = []string{"retry", "cancel", "delete"}
	start.Args = cobra.MatchAll(command.Exactly(1), command.Only(start.ValidArgs...))
	return s.group("bulk", "Retry, cancel or delete all jobs that match a filter", start,
		s.cmd("list", "List bulk operations, newest first", list(bulkView, adminPath+"/bulk", 50)),
		s.cmd("get BULK", "Show the progress of a bulk operation", show(bulkView, adminPath+"/bulk/%s")),
		s.cmd("items BULK", "List the jobs of a bulk operation with the result of each", list(bulkItemView, adminPath+"/bulk/%s/items", 100,
			param{"result", "result", "", "only jobs with this `result`"})),
		s.cmd("abort BULK", "Stop a bulk operation; changes made so far remain", changeAdmin(bulkView, http.MethodPost, "/bulk/%s/abort")))
}

func startBulk(f *pflag.FlagSet) run {
	values := query(f, jobFilters)
	all := f.Bool("all", false, "select all jobs; use it instead of a filter")
	dryRun := f.Bool("dry-run", false, "only count the jobs that would change, and list why other matching jobs would not change")
	override := f.Bool("override", false, "for retries: include jobs that are not retryable or have no attempts left")
	rate := f.Int("rate", 200, "change at most this many `jobs` per second")
	waiting := f.BoolP("wait", "w", false, "wait until the operation ends; exit with 1 if a job could not be changed")
	timeoutFlag(f, "with --wait: ")
	return func(c *call) error {
		query, err := values()
		if err != nil {
			return err
		}
		if *all == (len(query) > 0) {
			return command.Usagef("pass a filter such as --state FAILED, or --all (forgerun admin bulk start --help)")
		}
		filter := map[string]any{}
		for name := range query {
			filter[name] = query.Get(name)
		}
		if *all {
			filter["all"] = true
		}
		body := map[string]any{"action": c.args[0], "filter": filter, "dry_run": *dryRun, "rate": *rate, "override": *override}
		if *dryRun {
			return c.changeAdmin(dryView, http.MethodPost, "/bulk", body)
		}
		var receipt client.BulkReceipt
		if err := c.askAdmin(http.MethodPost, "/bulk", body, &receipt); err != nil {
			return err
		}
		c.args = []string{receipt.BulkID}
		if !*waiting {
			return show(bulkView, adminPath+"/bulk/%s")(f)(c)
		}
		return c.accepted("bulk operation", "admin bulk get", c.waitForBulk())
	}
}

func (c *call) waitForBulk() error {
	api, path, err := c.at(adminPath + "/bulk/%s")
	if err != nil {
		return err
	}
	var text json.RawMessage
	var bulk client.Bulk
	err = poll(c, func() (ended bool, pause time.Duration, err error) {
		if text, err = api.Do(c, http.MethodGet, path, nil, nil); err == nil {
			err = json.Unmarshal(text, &bulk)
		}
		return bulk.Final(), 500 * time.Millisecond, err
	})
	if err == nil {
		err = c.One(bulkView, text)
	}
	if err != nil || bulk.Failed == 0 {
		return err
	}
	return command.Code(command.Failed)
}
