package main

import (
	"context"
	"time"
)

// scheduleOnTime schedules a job a few seconds ahead. What counts as on time
// is its queueing: how soon it starts then depends on free workers.
func scheduleOnTime(ctx context.Context, v *visit) error {
	due := in(v.pace.lead)
	t, err := v.submit(ctx, due)
	if err != nil {
		return err
	}
	r, err := v.seeThrough(ctx, t)
	if err != nil {
		return err
	}
	if queued, ok := firstEntry(r.Events, stateQueued); ok && queued.Sub(due) > v.pace.punctual {
		v.differs("the job was queued %s after its time, allowed are %s", show(queued.Sub(due)), v.pace.punctual)
	}
	return nil
}

// scheduleAcrossOutage lets the due time pass while the service is down; the
// job must be queued at once when it is back (section 10). Against a service
// that is not ours it is an ordinary scheduled job.
func scheduleAcrossOutage(ctx context.Context, v *visit) error {
	if v.outage == nil {
		return submitAt(ctx, v, in(v.pace.lead))
	}
	due := in(v.pace.outageLead)
	t, err := v.submit(ctx, due)
	if err != nil {
		return err
	}
	v.saw("while the service is down")
	out, err := v.outage(ctx, due.Add(v.pace.settle))
	if err != nil {
		return err
	}
	r, err := v.seeThrough(ctx, t)
	if err != nil {
		return err
	}
	queued, ok := firstEntry(r.Events, stateQueued)
	switch {
	case !out.down.Before(due):
		v.differs("the service took until %s after the job's time to stop, so nothing was shown", show(out.down.Sub(due)))
	case ok && queued.Before(out.restarted):
		v.differs("the job was queued at %s, before the service was started again at %s", clock(queued), clock(out.restarted))
	case ok && queued.Sub(out.ready) > v.pace.recovery:
		v.differs("the job was queued %s after the service was back, allowed are %s", show(queued.Sub(out.ready)), v.pace.recovery)
	}
	return nil
}

// scheduleFarAhead schedules a job in 30 days, which must wait in CREATED, and
// then cancels it, so that nothing is left behind.
func scheduleFarAhead(ctx context.Context, v *visit) error {
	t, err := v.submit(ctx, in(30*24*time.Hour))
	if err != nil {
		return err
	}
	if err := sleep(ctx, v.pace.settle); err != nil {
		return err
	}
	waiting, _, err := v.look(ctx, t)
	if err != nil {
		return err
	}
	v.got = waiting.State
	if _, err := v.cancel(ctx, t); err != nil {
		return err
	}
	j, err := v.awaitEnd(ctx, t, 1)
	if err != nil {
		return err
	}
	v.got = waiting.State + ", then " + j.State
	_, err = v.judge(ctx, t, j, stateCanceled, 1)
	return err
}
