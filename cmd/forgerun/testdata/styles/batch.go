package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"os"
	"time"
)

// batch submits all jobs in one request and reads the batch until it is complete. Then it reads the list of jobs, and polls each job that
// the service still retries. It gives up a request if the service asks for a long wait.
func batch(ctx context.Context, a *api) ([]*intention, error) {
	a.longest = 30 * time.Second
	jobs := intentions(6)
	id, next, err := a.submitBatch(ctx, jobs)
	if err != nil {
		return nil, err
	}
	err = a.complete(ctx, id, next)
	if err == nil {
		err = a.updateFromList(ctx, "/v1/batches/"+id+"/jobs", jobs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err) // fall back to reading each job
	}
	return jobs, a.awaitAll(ctx, jobs)
}

// complete reads a batch until it is complete.
func (a *api) complete(ctx context.Context, id string, next time.Time) error {
	header := map[string]string{}
	for complete := false; !complete; {
		if err := pause(ctx, time.Until(next)+jitter(50*time.Millisecond)); err != nil {
			return err
		}
		var b struct {
			CompletedAt string `json:"completed_at"`
		}
		read := request{method: "GET", path: "/v1/batches/" + id, header: header, expected: true}
		got, err := a.call(ctx, read, &b, http.StatusOK, http.StatusNotModified)
		if err != nil {
			return err
		}
		if got.status == http.StatusOK {
			header["If-None-Match"] = got.header.Get("ETag")
			complete = b.CompletedAt != ""
		}
		next = time.Now().Add(got.again(time.Second))
	}
	return nil
}

func (a *api) submitBatch(ctx context.Context, jobs []*intention) (id string, next time.Time, err error) {
	var items []any
	for i, in := range jobs {
		item := maps.Clone(in.Body)
		item["item_id"], item["correlation_id"] = fmt.Sprintf("item-%d", i), in.Correlation
		items = append(items, item)
	}
	var receipt struct {
		ID   string `json:"batch_id"`
		Jobs []struct {
			Item string `json:"item_id"`
			Job  string `json:"job_id"`
		} `json:"jobs"`
	}
	got, err := a.call(ctx, request{
		method: "POST", path: "/v1/jobs/batch", body: map[string]any{"jobs": items}, header: map[string]string{"Idempotency-Key": rand.Text()},
	}, &receipt, http.StatusAccepted)
	if err != nil {
		return "", time.Time{}, err
	}
	ids := map[string]string{}
	for _, entry := range receipt.Jobs {
		ids[entry.Item] = entry.Job
	}
	for i, in := range jobs {
		if in.ID = ids[fmt.Sprintf("item-%d", i)]; in.ID == "" {
			return "", time.Time{}, fmt.Errorf("item-%d was refused: %s", i, got.body)
		}
	}
	return receipt.ID, time.Now().Add(got.again(time.Second)), nil
}
