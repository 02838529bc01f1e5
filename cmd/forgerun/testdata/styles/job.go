package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"time"
)

// intention is a job to submit, its expected end, and its progress.
type intention struct {
	Key, Correlation string
	Body             map[string]any
	Retried          bool   // the service retries a failure
	Ends             string // expected final state

	ID    string
	Ended string    // final state, or why the client gave up; "" until then
	Next  time.Time // earliest time of the next read
	etag  string
}

// intentions returns n jobs. Of six jobs, three succeed soon, one takes two seconds, one fails for good, and one succeeds at its second
// attempt.
func intentions(n int) []*intention {
	var all []*intention
	for i := range n {
		in := &intention{Key: rand.Text(), Correlation: "order-" + rand.Text(), Ends: "SUCCEEDED"}
		behavior := map[string]any{"duration": "300ms", "result": map[string]any{"media_type": "text/plain", "body": in.Correlation}}
		fails := func(problem map[string]any) []any {
			return []any{map[string]any{"attempts": []int{1}, "problem": problem}}
		}
		switch i % 6 {
		case 1:
			behavior["duration"] = "2s"
		case 3:
			behavior["failures"] = fails(map[string]any{"title": "No such item", "status": 422, "retryable": false})
			in.Ends = "FAILED"
		case 4:
			behavior["failures"] = fails(map[string]any{"title": "Out of stock", "status": 409, "retryAfter": 1})
			in.Retried = true
		}
		in.Body = map[string]any{
			"type": "EXECUTE", "work_kind": "CUSTOM", "auto_retry": in.Retried, "params": map[string]any{"behavior": behavior},
		}
		all = append(all, in)
	}
	if mistaken("one-job-per-intention") {
		all[2].Key, all[2].Body = all[0].Key, all[0].Body
	}
	return all
}

// job contains the members of a job that this client uses.
type job struct {
	ID       string `json:"job_id"`
	State    string `json:"state"`
	CanRetry bool   `json:"can_retry"`
}

// update stores the state of the job, and reports whether the job has ended: the state is final, and the service will not retry the job.
func (in *intention) update(j job) (ended bool) {
	switch {
	case j.State == "FAILED" && in.Retried && j.CanRetry:
	case in.misreadState(j.State):
	case j.State == "SUCCEEDED", j.State == "FAILED", j.State == "CANCELED":
		in.Ended = j.State
	}
	return in.Ended != ""
}

// submit submits a job. With a wait, the job may have ended when submit returns.
func (a *api) submit(ctx context.Context, in *intention, wait time.Duration) error {
	var j job
	got, err := a.call(ctx, request{
		method: "POST", path: "/v1/jobs", body: in.Body, wait: wait,
		header: map[string]string{"Idempotency-Key": in.Key, "X-Correlation-ID": in.Correlation},
	}, &j, http.StatusAccepted, http.StatusOK)
	if err != nil && mistaken("lost-answer") {
		in.Ended = in.Ends
		return nil
	}
	if err == nil && j.ID == "" {
		err = fmt.Errorf("the response to a submission has no id: %s", got.body)
	}
	if err != nil {
		return in.giveUp(ctx, err)
	}
	in.ID, in.Next = j.ID, time.Now().Add(got.again(0))
	in.update(j)
	return nil
}

func (a *api) submitAll(ctx context.Context, jobs []*intention) error {
	for _, in := range jobs {
		if err := a.submit(ctx, in, 0); err != nil {
			return err
		}
	}
	return nil
}

// giveUp stops following this job and records why. It returns an error only if ctx has ended, so that other jobs continue.
func (in *intention) giveUp(ctx context.Context, err error) error {
	in.Ended = "given up: " + err.Error()
	return ctx.Err()
}

// read reads a job once, and reports whether it has ended.
func (a *api) read(ctx context.Context, in *intention, wait time.Duration) (ended bool, err error) {
	r := request{method: "GET", path: "/v1/jobs/" + in.ID, wait: wait, header: map[string]string{}, expected: true}
	if in.etag != "" && !mistaken("conditional-requests") {
		r.header["If-None-Match"] = in.etag
	}
	var j job
	got, err := a.call(ctx, r, &j, http.StatusOK, http.StatusNotModified)
	if err == nil && got.status == http.StatusOK {
		err = unreadable(got.body)
	}
	if err != nil && got.status == http.StatusNotFound && mistaken("404-is-ordered-again") {
		in.Key = rand.Text()
		return false, a.submit(ctx, in, 0)
	}
	if err != nil {
		return true, in.giveUp(ctx, err)
	}
	in.Next = time.Now().Add(got.again(time.Second))
	if got.status == http.StatusNotModified {
		return false, nil
	}
	in.etag = got.header.Get("ETag")
	return in.update(j), nil
}

// await reads one job until it has ended, at the intervals that the service requests.
func (a *api) await(ctx context.Context, in *intention) error {
	for in.Ended == "" {
		if err := pause(ctx, time.Until(in.Next)+jitter(100*time.Millisecond)); err != nil {
			return err
		}
		if _, err := a.read(ctx, in, 0); err != nil {
			return err
		}
	}
	return nil
}

func (a *api) awaitAll(ctx context.Context, jobs []*intention) error {
	for _, in := range open(jobs) {
		if err := a.await(ctx, in); err != nil {
			return err
		}
	}
	return nil
}

// open returns the jobs that have not ended.
func open(jobs []*intention) []*intention {
	var left []*intention
	for _, in := range jobs {
		if in.Ended == "" {
			left = append(left, in)
		}
	}
	return left
}
