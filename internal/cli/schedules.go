package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/output"
)

var scheduleView = output.NewView("SCHEDULE:schedule_id, NAME:name, STATE:state:state, CRON:cron, INTERVAL:interval, NEXT, RUNS:runs, "+
	"MISSED:missed, ZONE:time_zone:wide, SKIPPED:skipped:wide, AGE:created_at:age:wide, ERROR:last_error.detail:wide", func(v any) string {
	if runs, _ := output.At(v, "next_runs").([]any); len(runs) > 0 {
		return output.Text(runs[0])
	}
	return ""
})

var triggeredView = output.NewView("JOB:job_id, STATE:state:state")

func (s *Shell) schedules() *cobra.Command {
	return s.forClients(s.group("schedules schedule", "Submit jobs on a schedule",
		s.cmd("create [KIND]", "Create a schedule", createSchedule),
		s.cmd("list", "List the schedules of the client, newest first", list(scheduleView, "/v1/schedules", 50)),
		s.cmd("get SCHEDULE", "Show a schedule with its next runs", byID(scheduleView, (*client.Client).Schedule)),
		s.cmd("pause SCHEDULE", "Pause a schedule", byID(scheduleView, (*client.Client).PauseSchedule)),
		s.cmd("resume SCHEDULE", "Resume a schedule; due times during the pause are skipped",
			byID(scheduleView, (*client.Client).ResumeSchedule)),
		s.cmd("trigger SCHEDULE", "Submit a job of a schedule now, in addition to its due times",
			byID(triggeredView, (*client.Client).TriggerSchedule)),
		s.cmd("delete SCHEDULE", "Delete a schedule but keep its jobs", deleteByID((*client.Client).DeleteSchedule))))
}

func createSchedule(f *pflag.FlagSet) run {
	var r client.ScheduleRequest
	f.StringVar(&r.Name, "name", "", "`name` of the schedule")
	f.StringVar(&r.Cron, "cron", "", "cron `expression` with five fields, or six with seconds first")
	f.StringVar(&r.TimeZone, "time-zone", "", "IANA time `zone` of --cron; default: UTC")
	f.StringVar(&r.Interval, "interval", "", "fixed `time` between runs, such as 90s; use it instead of --cron")
	f.StringVar(&r.Jitter, "jitter", "", "delay each run by a random `time` up to this")
	f.StringVar(&r.Overlap, "overlap", "", "`policy` for a due time while an earlier job is not final: allow, skip or queue_one")
	f.StringVar(&r.CatchUp, "catch-up", "", "`policy` for missed due times: none, last or all")
	f.IntVar(&r.CatchUpMax, "catch-up-max", 0, "how many missed runs --catch-up all submits at most; 0 means 100")
	f.BoolVar(&r.Paused, "paused", false, "create the schedule paused")
	params := f.String("params", "", "parameters of the jobs as a `JSON` object, or @FILE")
	eventName := f.String("event-name", "", "each job publishes an event of this `name`")
	file, check := exclusive(f, "schedule")
	return using(func(c *call, api *client.Client) error {
		if err := check(c.args); err != nil {
			return err
		}
		if *file != "" {
			if err := c.readJSON(*file, &r); err != nil {
				return err
			}
		} else {
			r.Job = client.JobRequest{Type: client.Execute, WorkKind: strings.Join(c.args, "")}
		}
		if *params != "" {
			object, err := c.object(*params, "--params")
			if err != nil {
				return err
			}
			r.Job.Params = object
		}
		if *eventName != "" {
			r.Job.Type, r.Job.Event = client.EmitEvent, &client.Emission{Name: *eventName}
		}
		created, err := api.CreateSchedule(c, r)
		if err != nil {
			return err
		}
		c.warn(created.Warnings)
		return c.One(scheduleView, created)
	})(f)
}
