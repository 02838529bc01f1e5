// Package schedules has the commands about schedules of the client whose key is used.
package schedules

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/jobs"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
)

// Command is "schedules" with those below it.
func Command(s *session.Session) *cobra.Command {
	c := s.ForClients(command.Group(&cobra.Command{
		Use: "schedules", Aliases: []string{"schedule"}, Short: "Submit jobs at times",
		Example: "  forgerun schedules create SUCCESS_FAST --interval 90s\n  forgerun schedules list\n  forgerun jobs list --schedule SCHEDULE",
	}))
	c.AddCommand(createCommand(s), listCommand(s),
		oneCommand(s, "get", "Show a schedule with its next runs", (*client.Client).Schedule),
		oneCommand(s, "pause", "Have nothing be due any more", (*client.Client).PauseSchedule),
		oneCommand(s, "resume", "Have a schedule be due again, from now on", (*client.Client).ResumeSchedule),
		triggerCommand(s), deleteCommand(s))
	return c
}

var view = output.View{ID: "schedule_id", Columns: []output.Column{
	{Head: "SCHEDULE", Path: "schedule_id"},
	{Head: "NAME", Path: "name"},
	{Head: "STATE", Path: "state", State: true},
	{Head: "CRON", Path: "cron"},
	{Head: "INTERVAL", Path: "interval"},
	{Head: "NEXT", Show: next},
	{Head: "RUNS", Path: "runs"},
	{Head: "MISSED", Path: "missed"},
	{Head: "ZONE", Path: "time_zone", Wide: true},
	{Head: "SKIPPED", Path: "skipped", Wide: true},
	{Head: "AGE", Path: "created_at", Age: true, Wide: true},
	{Head: "ERROR", Path: "last_error.detail", Wide: true},
}}

// next is the due time that comes next.
func next(schedule any) string {
	if runs, _ := output.At(schedule, "next_runs").([]any); len(runs) > 0 {
		return output.Text(runs[0])
	}
	return ""
}

var triggeredView = output.View{ID: "job_id", Columns: []output.Column{
	{Head: "JOB", Path: "job_id"}, {Head: "STATE", Path: "state", State: true},
}}

// with gives do what most commands need.
func with(s *session.Session, do func(*client.Client, *output.Printer) error) error {
	api, err := s.Client()
	if err != nil {
		return err
	}
	printer, err := s.Printer()
	if err != nil {
		return err
	}
	return do(api, printer)
}

func createCommand(s *session.Session) *cobra.Command {
	var r client.ScheduleRequest
	var params, file, eventName string
	c := &cobra.Command{
		Use: "create [KIND]", Short: "Create a schedule", Args: command.Between(0, 1),
		Long: "Creates a schedule by --cron or --interval. KIND is the work kind of its jobs; without one the service draws it for each run.\n" +
			"With --event-name the jobs publish an event.",
		Example: "  forgerun schedules create SUCCESS_FAST --cron '30 4 * * MON-FRI' --time-zone Europe/Berlin --overlap skip\n" +
			"  forgerun schedules create --interval 90s --event-name tick\n" +
			"  forgerun schedules create --file schedule.json",
		RunE: func(c *cobra.Command, args []string) error {
			if file != "" {
				if len(args) > 0 || r != (client.ScheduleRequest{}) || params != "" || eventName != "" {
					return command.Usagef("--file has the whole schedule: leave KIND and the flags that describe one out")
				}
				return fromFile(s, file, &r, func() error { return create(c.Context(), s, r) })
			}
			r.Job.Type = client.Execute
			if len(args) == 1 {
				r.Job.WorkKind = args[0]
			}
			if eventName != "" {
				r.Job.Type, r.Job.Event = client.EmitEvent, &client.Emission{Name: eventName}
			}
			if params != "" {
				if !json.Valid([]byte(params)) {
					return command.Usagef("--params must be a JSON object")
				}
				r.Job.Params = json.RawMessage(params)
			}
			return create(c.Context(), s, r)
		},
	}
	flags := c.Flags()
	flags.StringVar(&r.Name, "name", "", "a `line` of your own")
	flags.StringVar(&r.Cron, "cron", "", "when it is due: an `expression` of five fields, or six with seconds first")
	flags.StringVar(&r.TimeZone, "time-zone", "", "IANA time `zone` of --cron; UTC without it")
	flags.StringVar(&r.Interval, "interval", "", "the `time` between due times instead, such as 90s")
	flags.StringVar(&r.Jitter, "jitter", "", "by how much `time` runs are later at most, at random")
	flags.StringVar(&r.Overlap, "overlap", "", "`policy` while an earlier run is not final: allow, skip or queue_one")
	flags.StringVar(&r.CatchUp, "catch-up", "", "`policy` for due times that are late: none, last or all")
	flags.IntVar(&r.CatchUpMax, "catch-up-max", 0, "how many --catch-up all runs at most; 0: 100")
	flags.BoolVar(&r.Paused, "paused", false, "begin paused")
	flags.StringVar(&params, "params", "", "parameters of the jobs as a `JSON` object")
	flags.StringVar(&eventName, "event-name", "", "publish an event of this `name`")
	flags.StringVarP(&file, "file", "f", "", "read the whole schedule, a JSON object, from this `file`; - is standard input")
	return c
}

func fromFile(s *session.Session, file string, r *client.ScheduleRequest, then func() error) error {
	content, err := s.ReadFile(file)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(r); err != nil {
		return command.Usagef("%s: %w", file, err)
	}
	return then()
}

func create(ctx context.Context, s *session.Session, r client.ScheduleRequest) error {
	return with(s, func(api *client.Client, p *output.Printer) error {
		created, err := api.CreateSchedule(ctx, r)
		if err != nil {
			return err
		}
		for _, w := range created.Warnings {
			s.Notef("warning: %s: %s", w.Pointer, w.Detail)
		}
		return p.One(view, created)
	})
}

func listCommand(s *session.Session) *cobra.Command {
	limit := 50
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the schedules of the client, the newest first", Args: command.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			return with(s, func(api *client.Client, p *output.Printer) error {
				all, err := jobs.Take(api.Schedules(c.Context()), limit)
				if err != nil {
					return err
				}
				return p.List(view, all)
			})
		},
	}
	c.Flags().IntVar(&limit, "limit", limit, "at most so many; 0: all")
	return c
}

// oneCommand is one that shows the schedule as it is then.
func oneCommand(s *session.Session, name, short string,
	do func(*client.Client, context.Context, string, ...client.Option) (*client.Schedule, error),
) *cobra.Command {
	return &cobra.Command{
		Use: name + " SCHEDULE", Short: short, Args: command.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return with(s, func(api *client.Client, p *output.Printer) error {
				shown, err := do(api, c.Context(), args[0])
				if err != nil {
					return err
				}
				return p.One(view, shown)
			})
		},
	}
}

func triggerCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "trigger SCHEDULE", Short: "Submit a job of a schedule now, beside its due times", Args: command.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return with(s, func(api *client.Client, p *output.Printer) error {
				accepted, err := api.TriggerSchedule(c.Context(), args[0])
				if err != nil {
					return err
				}
				return p.One(triggeredView, accepted)
			})
		},
	}
}

func deleteCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "delete SCHEDULE", Short: "Delete a schedule; its jobs stay", Args: command.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := s.Client()
			if err != nil {
				return err
			}
			return api.DeleteSchedule(c.Context(), args[0])
		},
	}
}
