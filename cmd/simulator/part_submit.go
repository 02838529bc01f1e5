package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// The client's part in each kind: the ones that only submit are here, those
// that cancel, retry or schedule in the files named so.

// submitAndWait is the part of every kind that needs no help.
func submitAndWait(ctx context.Context, v *visit) error {
	return submitAt(ctx, v, time.Time{})
}

func submitAt(ctx context.Context, v *visit, at time.Time) error {
	t, err := v.submit(ctx, at)
	if err != nil {
		return err
	}
	_, err = v.seeThrough(ctx, t)
	return err
}

// seeThrough waits for the end of the first attempt and judges it.
func (v *visit) seeThrough(ctx context.Context, t ticket) (reportView, error) {
	j, err := v.awaitEnd(ctx, t, 1)
	if err != nil {
		return reportView{}, err
	}
	v.got = ending(j)
	return v.judge(ctx, t, j, v.kind.outcome, 1)
}

// submitTwiceSameKey repeats a submission under its idempotency key, which
// must give the same job and say so.
func submitTwiceSameKey(ctx context.Context, v *visit) error {
	key := uuid.NewString()
	first, err := v.submitKeyed(ctx, time.Time{}, key)
	if err != nil {
		return err
	}
	a, err := v.post(ctx, v.body(time.Time{}), key)
	if err != nil {
		return err
	}
	second, err := v.accepted(a, first.kind, time.Time{})
	if err != nil {
		return err
	}
	if replayed := a.header.Get("Idempotency-Replayed"); replayed != "true" {
		v.differs("the repeated submission has Idempotency-Replayed %q, expected \"true\"", replayed)
	}
	if _, err := v.seeThrough(ctx, first); err != nil {
		return err
	}
	if second.id != first.id {
		v.got += ", two jobs"
		return fmt.Errorf("one idempotency key gave two jobs, %s and %s", first.id, second.id)
	}
	v.got += ", same job"
	return nil
}

// submitTwiceDifferentKeys sends the same request under two keys, which must
// give two jobs that both succeed.
func submitTwiceDifferentKeys(ctx context.Context, v *visit) error {
	first, err := v.submit(ctx, time.Time{})
	if err != nil {
		return err
	}
	second, err := v.submit(ctx, time.Time{})
	if err != nil {
		return err
	}
	if _, err := v.seeThrough(ctx, second); err != nil {
		return err
	}
	if _, err := v.seeThrough(ctx, first); err != nil {
		return err
	}
	if second.id == first.id {
		v.got += ", same job"
		return fmt.Errorf("two idempotency keys gave one job, %s", first.id)
	}
	v.got += ", two jobs"
	return nil
}

// submitRefused submits what must be refused, leaving no job behind.
func submitRefused(ctx context.Context, v *visit) error {
	a, err := v.post(ctx, v.body(time.Time{}), uuid.NewString())
	if err != nil {
		return err
	}
	if a.status == http.StatusAccepted {
		t, err := v.accepted(a, "EXECUTE", time.Time{})
		if err != nil {
			return err
		}
		v.got = "ACCEPTED"
		return fmt.Errorf("the service accepted it as job %s, expected 400 %s", t.id, codeValidationFailed)
	}
	p, ok := a.problem()
	if !ok || a.status != http.StatusBadRequest || p.Code != codeValidationFailed {
		return a.unexpected("expected 400 " + codeValidationFailed)
	}
	if p.JobID != "" || a.header.Get("Location") != "" {
		v.differs("the refusal names a job (%s%s)", p.JobID, a.header.Get("Location"))
	}
	v.got = "REJECTED"
	return nil
}
