// Package clock moves the clock of a ForgeRun server, to test events of several days within seconds. No other client may use the server
// meanwhile, because the clock moves for all clients.
//
//	FORGERUN_URL=http://127.0.0.1:8080 go test -count=1 ./examples/go/clock
package clock

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/forgerun/forgerun/client"
)

const day = 24 * time.Hour

// The key of a client expires after 90 days.
func TestKeyExpires(t *testing.T) {
	_, c := register(t)
	must(c.AdvanceClock(t.Context(), 91*day))
	_, err := c.Job(t.Context(), "0190c0de-0000-7000-8000-000000000000")
	requireCode(t, err, "RFA_AUTH_TOKEN_EXPIRED")
}

// A client that renews its key in time does not notice the expiry. The old key stays valid for a while.
func TestKeyIsRenewed(t *testing.T) {
	id, c := register(t)
	session := must(c.StartSession(t.Context(), client.SessionRequest{Rules: []string{"key-renewal"}}))
	must(c.Run(t.Context(), succeeding()))
	must(c.AdvanceClock(t.Context(), 89*day))
	c = c.WithKey(must(c.RenewKey(t.Context(), id)).APIKey)
	must(c.AdvanceClock(t.Context(), 2*day))
	must(c.Run(t.Context(), succeeding()))
	must(c.EndSession(t.Context(), session.SessionID))
	if v := must(c.Verdict(t.Context(), session.SessionID)); v.Verdict != "passed" {
		t.Fatalf("%+v", v)
	}
}

// ForgeRun keeps a result for a day after the job has ended.
func TestResultIsGone(t *testing.T) {
	_, c := register(t)
	job := must(c.Run(t.Context(), succeeding()))
	must(c.Result(t.Context(), job.JobID))
	must(c.AdvanceClock(t.Context(), day+time.Hour))
	_, err := c.Result(t.Context(), job.JobID)
	requireCode(t, err, "RFA_RESULT_GONE")
}

// After a failure with a retryAfter of a day, the next attempt runs a day later.
func TestRetryOfTomorrow(t *testing.T) {
	_, c := register(t)
	request := client.JobRequest{Type: client.Execute, WorkKind: client.KindCustom, AutoRetry: true,
		Params: client.CustomParams{Behavior: client.Behavior{Failures: []client.PlannedFailure{
			{Attempts: []int{1}, Problem: client.PlannedProblem{Title: "Closed for today", Status: 503, RetryAfter: 86_400}},
		}}}}
	accepted := must(c.Submit(t.Context(), request))
	for len(must(c.Attempts(t.Context(), accepted.JobID))) == 0 { // the first try has not failed yet
		time.Sleep(50 * time.Millisecond)
	}
	must(c.AdvanceClock(t.Context(), day))
	job := must(c.Wait(t.Context(), accepted.JobID))
	if job.State != "SUCCEEDED" || job.Attempt != 2 || job.StartedAt.Sub(job.CreatedAt) < day {
		t.Fatalf("%+v", job)
	}
}

// ForgeRun retries a failed delivery at growing intervals, and gives up after the ninth try.
func TestDeliveryIsGivenUp(t *testing.T) {
	_, c := register(t)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer receiver.Close()
	hook := must(c.CreateWebhook(t.Context(), client.WebhookRequest{URL: receiver.URL, Events: []string{"job.succeeded"}}))
	must(c.Run(t.Context(), succeeding()))
	for seen := 0; ; time.Sleep(50 * time.Millisecond) {
		for delivery, err := range c.Deliveries(t.Context(), hook.WebhookID, client.DeliveryFilter{}) {
			if err != nil {
				t.Fatal(err)
			}
			if delivery.State == "FAILED" && delivery.Attempts == 9 {
				return
			}
			if delivery.Attempts > seen { // another try has failed; the next one is due in an hour at most
				seen = delivery.Attempts
				must(c.AdvanceClock(t.Context(), time.Hour))
			}
		}
	}
}

// register creates a client for one test. The movable clock of the service decides when the client's key expires.
func register(t *testing.T) (id string, c *client.Client) {
	t.Helper()
	if os.Getenv("FORGERUN_URL") == "" {
		t.Skip("FORGERUN_URL does not name a test bed: see forgerun dev")
	}
	anybody := must(client.New(client.Config{URL: os.Getenv("FORGERUN_URL")}))
	id = must(anybody.CreateClient(t.Context()))
	return id, anybody.WithKey(must(anybody.CreateKey(t.Context(), id, false)).APIKey)
}

func succeeding() client.JobRequest {
	return client.JobRequest{Type: client.Execute, WorkKind: client.KindCustom, Params: client.CustomParams{}}
}

func requireCode(t *testing.T, err error, code string) {
	t.Helper()
	if problem, ok := errors.AsType[*client.Problem](err); !ok || problem.Code != code {
		t.Fatalf("%v is not %s", err, code)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
