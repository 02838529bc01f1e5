package main

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

// library gives the Go client library, registered as a client of its own.
func (s *stack) library(api *proc) *client.Client {
	s.t.Helper()
	c, err := client.New(client.Config{URL: api.url})
	require.NoError(s.t, err)
	id, err := c.CreateClient(s.ctx())
	require.NoError(s.t, err)
	key, err := c.CreateKey(s.ctx(), id, false)
	require.NoError(s.t, err)
	s.secret(key.APIKey)
	return c.WithKey(key.APIKey)
}

// TestClientLibrary: the library's own tests play the service; here it meets the
// real one.
func TestClientLibrary(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks)
	api, _, _ := s.startDelivering()
	c := s.library(api)
	ctx := t.Context()

	ready, err := c.Ready(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, ready.Status)

	a, err := c.Submit(ctx, client.JobRequest{Type: client.Execute, WorkKind: "PAYLOAD_SMALL"}, client.IdempotencyKey("once"))
	require.NoError(t, err)
	again, err := c.Submit(ctx, client.JobRequest{Type: client.Execute, WorkKind: "PAYLOAD_SMALL"}, client.IdempotencyKey("once"))
	require.NoError(t, err)
	require.Equal(t, a.JobID, again.JobID)
	require.True(t, again.Replayed)
	j, err := c.Wait(ctx, a.JobID)
	require.NoError(t, err)
	require.Equal(t, client.Succeeded, j.State)
	_, err = c.Job(ctx, a.JobID, client.IfNoneMatch(j.ETag))
	require.ErrorIs(t, err, client.ErrNotModified)

	result, err := c.Result(ctx, a.JobID)
	require.NoError(t, err)
	require.Len(t, result.Data, 1024)
	report, err := c.Report(ctx, a.JobID, 0)
	require.NoError(t, err)
	require.Len(t, report.Events, 5)
	outcome, err := c.Attempt(ctx, a.JobID, 1)
	require.NoError(t, err)
	require.True(t, outcome.Terminal())
	attempts, err := c.Attempts(ctx, a.JobID)
	require.NoError(t, err)
	require.Len(t, attempts, 1)

	var names []string
	for m, err := range c.Stream(ctx, client.StreamOptions{JobID: a.JobID}) {
		require.NoError(t, err)
		names = append(names, m.Name)
	}
	require.Equal(t, []string{"job-created", "job-queued", "job-assigned", "job-running", "job-succeeded"}, names)

	require.NoError(t, c.Delete(ctx, a.JobID))
	_, err = c.Job(ctx, a.JobID)
	var problem *client.Problem
	require.ErrorAs(t, err, &problem)
	require.Equal(t, http.StatusGone, problem.Status)
	_, err = c.Submit(ctx, client.JobRequest{Type: "NOTHING"})
	require.ErrorAs(t, err, &problem)
	require.Equal(t, "RFA_JOB_VALIDATION_FAILED", problem.Code)
	require.NotEmpty(t, problem.Violations)

	failed, err := c.Run(ctx, client.JobRequest{Type: client.Execute, WorkKind: "FAIL_IMMEDIATE"})
	require.NoError(t, err)
	require.Equal(t, client.Failed, failed.State)
	require.False(t, failed.Failure.Retryable())
	require.False(t, failed.CanRetry)
	_, err = c.Retry(ctx, failed.JobID)
	require.ErrorAs(t, err, &problem)
	require.Equal(t, "RFA_JOB_CONFLICT", problem.Code)
	canceled, err := c.Submit(ctx, client.JobRequest{Type: client.Deferred, WorkKind: "SUCCESS_FAST", ExecutionAt: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	changed, err := c.Cancel(ctx, canceled.JobID)
	require.NoError(t, err)
	require.True(t, changed.Changed)
	require.Equal(t, client.Canceled, changed.State)

	var listed []string
	for j, err := range c.Jobs(ctx, client.JobFilter{PageSize: 1}) {
		require.NoError(t, err)
		listed = append(listed, j.JobID)
	}
	require.Equal(t, []string{canceled.JobID, failed.JobID}, listed)
	s.checkInvariantsOfLibrary()
}

// checkInvariantsOfLibrary is checkInvariants for jobs whose requests were not
// sent by a user of the tests.
func (s *stack) checkInvariantsOfLibrary() {
	s.t.Helper()
	for _, h := range s.histories() {
		require.Empty(s.t, h.violations())
	}
}

func TestClientLibraryBatch(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks)
	api, _, _ := s.startDelivering()
	c := s.library(api)
	ctx := t.Context()
	receipt, err := c.SubmitBatch(ctx, []client.JobRequest{
		{ItemID: "good", Type: client.Execute, WorkKind: "SUCCESS_FAST"},
		{ItemID: "bad", Type: client.Execute, WorkKind: "FAIL_IMMEDIATE"},
		{ItemID: "refused", Type: client.Execute, WorkKind: "PAYLOAD_INVALID"},
	})
	require.NoError(t, err)
	require.Len(t, receipt.Jobs, 3)
	require.NotNil(t, receipt.Jobs[2].Failure)
	s.awaitFinal(receipt.Jobs[0].JobID, receipt.Jobs[1].JobID)
	eventually(t, "the batch is complete", func() bool {
		b, err := c.Batch(ctx, receipt.BatchID)
		require.NoError(t, err)
		return b.Final() && b.Status == "COMPLETED_WITH_ERRORS"
	})
	var items []string
	for j, err := range c.BatchJobs(ctx, receipt.BatchID) {
		require.NoError(t, err)
		items = append(items, j.ItemID)
	}
	slices.Sort(items)
	require.Equal(t, []string{"bad", "good"}, items)
}

// Both signatures of what the service really sends, and what of a forged one.
func TestClientLibraryVerifiesWebhooks(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks)
	api, _, _ := s.startDelivering()
	c := s.library(api)
	ctx := t.Context()
	for _, mode := range []string{"binary", "structured"} {
		r := newReceiver(t, nil)
		w, err := c.CreateWebhook(ctx, client.WebhookRequest{URL: r.url, Events: []string{"job.succeeded"}, ContentMode: mode})
		require.NoError(t, err)
		s.secret(w.Secret)
		a, err := c.Submit(ctx, client.JobRequest{Type: client.Execute, WorkKind: "WEBHOOK_SUCCESS"})
		require.NoError(t, err)
		got := r.await("the end", func(received) bool { return true })

		v := client.Verifier{Secret: w.Secret, Keys: c.Directory().Key, URL: got.url}
		m, err := v.Verify(got.request())
		require.NoError(t, err)
		altered := got
		altered.body += " "
		_, err = v.Verify(altered.request())
		require.ErrorIs(t, err, client.ErrSignature)
		v.Secret, v.URL = "", got.url+"x"
		_, err = v.Verify(got.request())
		require.ErrorIs(t, err, client.ErrSignature)
		require.Equal(t, "job.succeeded", m.Name)
		require.Contains(t, m.Subject, a.JobID)
		s.awaitDeliveries()
		for d, err := range c.Deliveries(ctx, w.WebhookID, client.DeliveryFilter{}) {
			require.NoError(t, err)
			require.Equal(t, "DELIVERED", d.State)
		}
	}
}

// A stream that is read through the library loses nothing and repeats nothing
// when the api process is replaced under it.
func TestClientLibraryStreamOverARestart(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks)
	api := s.startAPI()
	s.startWorker()
	c := s.library(api)
	connected := make(chan string, 16)
	names := make(chan string, 64)
	go func() {
		for m, err := range c.Stream(t.Context(), client.StreamOptions{OnConnect: func(id string) { connected <- id }}) {
			if err != nil {
				return
			}
			names <- m.Name
		}
	}()
	<-connected
	_, err := c.Submit(t.Context(), client.JobRequest{Type: client.Execute, WorkKind: "SUCCESS_FAST"})
	require.NoError(t, err)
	want := []string{"job-created", "job-queued", "job-assigned", "job-running", "job-succeeded"}
	take := func() {
		t.Helper()
		for _, name := range want {
			select {
			case got := <-names:
				require.Equal(t, name, got)
			case <-time.After(patience):
				t.Fatalf("no %s", name)
			}
		}
	}
	take()
	api.kill()
	s.startAPI(env{"FORGERUN_HTTP_ADDR": api.url[len("http://"):]})
	a, err := c.Submit(t.Context(), client.JobRequest{Type: client.Execute, WorkKind: "SUCCESS_FAST"})
	require.NoError(t, err)
	require.NotEmpty(t, a.JobID)
	take()
}
