package main

import (
	"context"
	"fmt"
	"time"
)

// cancelBeforeStart cancels a job that waits. A free worker takes an instant
// job within milliseconds of its submission, so a client cannot reliably find
// one in QUEUED: the job is scheduled a few seconds ahead and canceled in
// CREATED. It is looked at again after its time: it must never run.
func cancelBeforeStart(ctx context.Context, v *visit) error {
	due := in(v.pace.lead)
	t, err := v.submit(ctx, due)
	if err != nil {
		return err
	}
	if _, err := v.cancel(ctx, t); err != nil {
		return err
	}
	r, err := v.seeThrough(ctx, t)
	if err != nil {
		return err
	}
	if r.StartedAt != nil || ranOnce(r.Events) {
		v.differs("the job ran although it was canceled before its time")
	}
	return v.staysCanceled(ctx, t, time.Until(due)+v.pace.settle, r)
}

// cancelDuringRun cancels a job that runs. A job that ended before the cancel
// came is nobody's fault, so the race is run again, a few times.
func cancelDuringRun(ctx context.Context, v *visit) error {
	for range v.pace.tries {
		t, err := v.submit(ctx, time.Time{})
		if err != nil {
			return err
		}
		j, err := v.await(ctx, t, v.pace.watch, func(j jobView) bool { return j.State == stateRunning || isFinal(j.State) })
		if err != nil {
			return err
		}
		if j.State == stateSucceeded {
			continue
		}
		state, err := v.cancel(ctx, t)
		if err != nil {
			return err
		}
		if state == stateSucceeded {
			continue
		}
		r, err := v.seeThrough(ctx, t)
		if err != nil {
			return err
		}
		if from := lastPrev(r.Events); from != stateRunning {
			v.differs("the job was canceled in %s, expected RUNNING", orNone(from))
		}
		return v.staysCanceled(ctx, t, v.pace.settle, r)
	}
	v.got = stateSucceeded
	return fmt.Errorf("each of %d jobs had ended before it could be canceled", v.pace.tries)
}

// staysCanceled looks again after a while, and cancels again: both must change
// nothing (section 7).
func (v *visit) staysCanceled(ctx context.Context, t ticket, after time.Duration, before reportView) error {
	if err := sleep(ctx, after); err != nil {
		return err
	}
	state, err := v.cancel(ctx, t)
	if err != nil {
		return err
	}
	r, err := v.report(ctx, t)
	if err != nil {
		return err
	}
	if state != stateCanceled || len(r.Events) != len(before.Events) {
		v.differs("the canceled job changed afterwards: it is %s with %d events, was CANCELED with %d",
			state, len(r.Events), len(before.Events))
	}
	return nil
}
