package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// retryOnce retries the failed job; its second attempt must succeed.
func retryOnce(ctx context.Context, v *visit) error {
	t, err := v.submit(ctx, time.Time{})
	if err != nil {
		return err
	}
	first, err := v.awaitEnd(ctx, t, 1)
	if err != nil {
		return err
	}
	v.got = first.State
	if first.State != stateFailed {
		_, err := v.judge(ctx, t, first, stateFailed, 1)
		return err
	}
	v.judgeFailure(t, first)
	refused, err := v.retry(ctx, t, first)
	if err != nil {
		return err
	}
	if refused {
		return fmt.Errorf("the retry of the failed job was refused after attempt 1 of %d", first.MaxAttempts)
	}
	second, err := v.awaitEnd(ctx, t, 2)
	if err != nil {
		return err
	}
	v.got = first.State + ", then " + second.State
	_, err = v.judge(ctx, t, second, stateSucceeded, 2)
	return err
}

// retryToTheLimit retries until the service refuses, which it must do exactly
// when max_attempts are used up.
func retryToTheLimit(ctx context.Context, v *visit) error {
	t, err := v.submit(ctx, time.Time{})
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		j, err := v.awaitEnd(ctx, t, attempt)
		if err != nil {
			return err
		}
		v.got = j.State
		if j.State == stateFailed {
			v.judgeFailure(t, j)
			refused, err := v.retry(ctx, t, j)
			if err != nil {
				return err
			}
			if !refused && j.Attempt < j.MaxAttempts {
				continue
			}
			if !refused {
				return fmt.Errorf("a retry was accepted after attempt %d of %d", j.Attempt, j.MaxAttempts)
			}
			v.got = "FAILED, no retry left"
		}
		r, err := v.judge(ctx, t, j, stateFailed, j.MaxAttempts)
		if n := count(r.Events, "job.retries_exhausted"); err == nil && n != 1 {
			v.differs("the report has %d job.retries_exhausted events, expected 1", n)
		}
		return err
	}
}

// retry asks for another attempt after the failed one, j; refused tells that
// the service answered 409.
func (v *visit) retry(ctx context.Context, t ticket, j jobView) (refused bool, err error) {
	a, err := v.change(ctx, t, "retry")
	if err != nil {
		return false, err
	}
	if p, ok := a.problem(); ok && a.status == http.StatusConflict && p.Code == codeConflict {
		return true, nil
	}
	var r receipt
	if err := a.decode(http.StatusOK, &r); err != nil {
		return false, err
	}
	v.note(t.id, r.State, r.Attempt)
	if r.JobID != t.id || r.Attempt != j.Attempt+1 || r.UpdatedAt == nil {
		v.differs("the retry after attempt %d answered job %q, attempt %d, updated_at present: %t",
			j.Attempt, r.JobID, r.Attempt, r.UpdatedAt != nil)
	}
	return false, nil
}
