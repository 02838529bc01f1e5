// Package schedules has the commands about schedules of the client whose key is used.
package schedules

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
)

// Command is "schedules" with those below it.
func Command(s *session.Session) *cobra.Command {
	c := s.ForClients(command.Group(&cobra.Command{
		Use: "schedules", Aliases: []string{"schedule"}, Short: "Submit jobs at times",
	}))
	c.AddCommand(createCommand(s), listCommand(s),
		command.New("get SCHEDULE", "Show a schedule with its next runs", session.Show(s, view, (*client.Client).Schedule)),
		command.New("pause SCHEDULE", "Have nothing be due any more", session.Show(s, view, (*client.Client).PauseSchedule)),
		command.New("resume SCHEDULE", "Have a schedule be due again, from now on", session.Show(s, view, (*client.Client).ResumeSchedule)),
		command.New("trigger SCHEDULE", "Submit a job of a schedule now, beside its due times",
			session.Show(s, triggeredView, (*client.Client).TriggerSchedule)),
		command.New("delete SCHEDULE", "Delete a schedule; its jobs stay", session.Delete(s, (*client.Client).DeleteSchedule)))
	return c
}

var view = output.NewView("schedule_id",
	"SCHEDULE:schedule_id, NAME:name, STATE:state:state, CRON:cron, INTERVAL:interval, NEXT, RUNS:runs, MISSED:missed, "+
		"ZONE:time_zone:wide, SKIPPED:skipped:wide, AGE:created_at:age:wide, ERROR:last_error.detail:wide", next)

// next is the due time that comes next.
func next(schedule any) string {
	if runs, _ := output.At(schedule, "next_runs").([]any); len(runs) > 0 {
		return output.Text(runs[0])
	}
	return ""
}

var triggeredView = output.NewView("job_id", "JOB:job_id, STATE:state:state")

func createCommand(s *session.Session) *cobra.Command {
	var r client.ScheduleRequest
	var params, file, eventName string
	c := command.New("create [KIND]", "Create a schedule",
		s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, args []string) error {
			described := len(args) > 0 || r != (client.ScheduleRequest{}) || params != "" || eventName != ""
			switch {
			case file != "" && described:
				return command.Usagef("--file has the whole schedule: leave KIND and the flags that describe one out")
			case file != "":
				if err := s.ReadJSON(file, &r); err != nil {
					return err
				}
			case params != "" && !json.Valid([]byte(params)):
				return command.Usagef("--params must be a JSON object")
			default:
				r.Job = client.JobRequest{Type: client.Execute, WorkKind: strings.Join(args, "")}
				if params != "" {
					r.Job.Params = json.RawMessage(params)
				}
				if eventName != "" {
					r.Job.Type, r.Job.Event = client.EmitEvent, &client.Emission{Name: eventName}
				}
			}
			created, err := api.CreateSchedule(ctx, r)
			if err != nil {
				return err
			}
			for _, w := range created.Warnings {
				s.Notef("warning: %s: %s", w.Pointer, w.Detail)
			}
			return p.One(view, created)
		}))
	c.Long = "Creates a schedule by --cron or --interval. KIND is the work kind of its jobs; without one the service draws it for each " +
		"run.\nWith --event-name the jobs publish an event."
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

func listCommand(s *session.Session) *cobra.Command {
	limit := 50
	return session.Limit(command.New("list", "List the schedules of the client, the newest first",
		s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, _ []string) error {
			return session.List(p, view, api.Schedules(ctx), limit)
		})), &limit)
}
