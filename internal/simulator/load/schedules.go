package load

import (
	"context"
	"fmt"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

// scheduledTicket is the ticket of jobs from schedules, which have none.
const scheduledTicket = -1

// lateRuns is how late the last runs of a schedule may come: a new leader may be needed.
const lateRuns = time.Minute

// schedule creates the schedules of the scenario, which end with its duration.
func (e *Engine) schedule(ctx context.Context) error {
	s := e.o.Scenario.Schedules
	for _, a := range e.accounts {
		for n := range s.Count {
			created, err := a.Client.CreateSchedule(ctx, client.ScheduleRequest{
				Name: fmt.Sprintf("%s.%d", e.o.Run, n), Interval: s.Every.String(), EndAt: time.Now().Add(e.o.Scenario.Duration).UTC(),
				CatchUp: client.CatchUpAll, CatchUpMax: 1000, Job: client.JobRequest{Type: client.Execute, WorkKind: client.KindSuccessFast},
			})
			if err != nil {
				return fmt.Errorf("creating a schedule of tenant %d: %w", a.Tenant, err)
			}
			e.schedules = append(e.schedules, created)
			e.o.History.Add(history.Fact{At: time.Now().UTC(), Kind: history.Scheduled, Tenant: a.Tenant, Schedule: &history.Schedule{
				ID: created.ScheduleID, Interval: s.Every, CreatedAt: created.CreatedAt, EndAt: created.EndAt,
			}})
		}
	}
	return nil
}

// awaitSchedules waits until no due time is left, and makes Drain wait for the schedules' jobs as well.
func (e *Engine) awaitSchedules(ctx context.Context) error {
	for n, s := range e.schedules {
		a := e.accounts[n/e.o.Scenario.Schedules.Count]
		for limit := s.EndAt.Add(lateRuns); ; {
			now, err := a.Client.Schedule(ctx, s.ScheduleID)
			if err == nil && (now.State == "ENDED" || time.Now().After(limit)) {
				break
			}
			if err := Sleep(ctx, 200*time.Millisecond); err != nil {
				return err
			}
		}
		for j, err := range a.Client.Jobs(ctx, client.JobFilter{ScheduleID: s.ScheduleID, PageSize: 100}) {
			if err != nil {
				return fmt.Errorf("jobs of schedule %s: %w", s.ScheduleID, err)
			}
			e.jobs.accepted(j.JobID, j.State, false, func(known *job) {
				known.ticket, known.tenant, known.intended = scheduledTicket, a.Tenant, j.ScheduledFor
			})
		}
	}
	return nil
}
