package tour

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

var due = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

func look(state string, attempt int, document *client.Outcome) history.Fact {
	return history.Fact{Kind: history.Looked, Shown: &history.Job{Job: client.Job{State: state, Attempt: attempt, Failure: document}}}
}

func retry(status int, state string) history.Fact {
	return history.Fact{Kind: history.Acted, Action: &history.Answer{Verb: "retry", Status: status, State: state}}
}

func told(state string, attempts int, err string) history.Fact {
	return history.Fact{Kind: history.APIDelivery, Delivery: &history.Delivery{Webhook: "w", State: state, Attempts: attempts, Error: err}}
}

func reported(state string, at time.Duration) history.Fact {
	return history.Fact{Kind: history.APIReport, Report: &history.Report{Events: []history.Event{{Next: state, At: due.Add(at)}}}}
}

var mayPass, _ = client.ParseOutcome("", []byte(`{"retryable":true}`))

var succeeded, received = look(client.Succeeded, 1, nil), history.Fact{Kind: history.Received, Delivery: &history.Delivery{Webhook: "w"}}

// Each kind as it should be, and in other ways: by what was seen of its job, or of two.
func TestRows(t *testing.T) {
	t.Parallel()
	down := func(down, restarted, ready time.Duration) *OutageTimes {
		return &OutageTimes{due.Add(down), due.Add(restarted), due.Add(ready)}
	}
	type seen = []history.Fact
	for n, c := range []struct {
		kind, got, mark string
		facts           seen
		outage          *OutageTimes
		finding         string
	}{
		{kind: "PAYLOAD_INVALID", got: "REJECTED", mark: "yes"},
		{kind: "PAYLOAD_INVALID", got: "SUCCEEDED", mark: "NO", facts: seen{succeeded}, finding: "got SUCCEEDED, expected REJECTED"},
		{kind: "SUCCESS_FAST", got: "SUCCEEDED", mark: "yes", facts: seen{succeeded}},
		{kind: "SUCCESS_FAST", got: "REJECTED", mark: "NO", finding: "got REJECTED, expected SUCCEEDED"},
		{kind: "FAIL_IMMEDIATE", got: "FAILED", mark: "yes", facts: seen{look("FAILED", 1, &client.Outcome{})}},
		{kind: "FAIL_AFTER_RETRYABLE", got: "FAILED, retryable", mark: "yes", facts: seen{look("FAILED", 1, mayPass)}},
		{kind: "RUNS_OVER_TIMEOUT", got: "FAILED, timed out", mark: "yes",
			facts: seen{look("FAILED", 1, &client.Outcome{OutcomeDocument: client.OutcomeDocument{JobStatus: "TIMED_OUT"}})}},
		{kind: "RETRY_ON_FAIL", got: "FAILED, then SUCCEEDED", mark: "yes", facts: seen{retry(200, "QUEUED"), look("SUCCEEDED", 2, nil)}},
		{kind: "RETRY_ON_FAIL", got: "FAILED", mark: "NO", facts: seen{look("FAILED", 1, nil)},
			finding: "got FAILED, expected FAILED, then SUCCEEDED"},
		{kind: "RETRY_LIMIT_REACHED", got: "FAILED, no retry left", mark: "yes",
			facts: seen{retry(200, "QUEUED"), look("FAILED", 4, nil), retry(409, "")}},
		{kind: "DUPLICATE_SUBMIT_SAME_KEY", got: "SUCCEEDED, same job", mark: "yes", facts: seen{succeeded}},
		{kind: "SCHEDULED_FAR_FUTURE", got: "CREATED, then CANCELED", mark: "yes", facts: seen{look("CANCELED", 1, nil)}},
		{kind: "CANCEL_DURING_RUN", got: "CANCELED", mark: "NO", facts: seen{look("CANCELED", 1, nil)},
			finding: "the job was canceled before it ran"},
		{kind: "CANCEL_DURING_RUN", got: "CANCELED", mark: "yes", facts: seen{look("CANCELED", 1, nil), reported("RUNNING", 0)}},
		{kind: "WEBHOOK_SUCCESS", got: "SUCCEEDED, delivered", mark: "yes", facts: seen{succeeded, received, told("DELIVERED", 1, "")}},
		{kind: "WEBHOOK_5XX", got: "SUCCEEDED, delivered on retry", mark: "yes", facts: seen{succeeded, told("DELIVERED", 2, "")}},
		{kind: "WEBHOOK_SLOW_RECEIVER", got: "SUCCEEDED, delivered late", mark: "yes", facts: seen{succeeded, told("DELIVERED", 1, "")}},
		{kind: "WEBHOOK_RETRIES_EXHAUSTED", got: "SUCCEEDED, delivery FAILED", mark: "yes", facts: seen{succeeded, told("FAILED", 4, "")}},
		{kind: "WEBHOOK_RETRIES_EXHAUSTED", got: "SUCCEEDED, 2 tries so far", mark: "so far", facts: seen{succeeded, told("PENDING", 2, "")}},
		{kind: "WEBHOOK_5XX", got: "SUCCEEDED, 2 tries so far", mark: "NO", facts: seen{succeeded, told("PENDING", 2, "")},
			finding: "the delivery is still PENDING after 2 tries, expected SUCCEEDED, delivered on retry"},
		{kind: "WEBHOOK_5XX", got: "SUCCEEDED, 1 tries so far", mark: "?", facts: seen{succeeded, told("PENDING", 1, "CONNECTION_FAILED")}},
		{kind: "SCHEDULED_ON_TIME", got: "SUCCEEDED", mark: "yes", facts: seen{succeeded, reported("QUEUED", 2*time.Second)}},
		{kind: "SCHEDULED_ON_TIME", got: "SUCCEEDED", mark: "NO", facts: seen{succeeded, reported("QUEUED", 3*time.Second)},
			finding: "the job was queued 3s after its time, allowed are 2s"},
		{kind: "SCHEDULED_LATE_RECOVERY", got: "SUCCEEDED", mark: "yes", facts: seen{succeeded, reported("QUEUED", 7*time.Second)},
			outage: down(-time.Second, time.Second, 2*time.Second)},
		{kind: "SCHEDULED_LATE_RECOVERY", got: "SUCCEEDED", mark: "NO", facts: seen{succeeded, reported("QUEUED", 4*time.Second)},
			outage:  down(time.Second, 2*time.Second, 3*time.Second),
			finding: "the service took until 1s after the job's time to stop, so nothing was shown"},
		{kind: "SCHEDULED_LATE_RECOVERY", got: "SUCCEEDED", mark: "NO", facts: seen{succeeded, reported("QUEUED", time.Second)},
			outage: down(-time.Second, 2*time.Second, 3*time.Second), finding: "the job was queued 1s before the service was started again"},
		{kind: "SCHEDULED_LATE_RECOVERY", got: "SUCCEEDED", mark: "NO", facts: seen{succeeded, reported("QUEUED", 8*time.Second)},
			outage:  down(-time.Second, time.Second, 2*time.Second),
			finding: "the job was queued 6s after the service was back, allowed are 5s"},
	} {
		submitted := history.Fact{Kind: history.Submitted, Submission: &history.Submission{WorkKind: c.kind, ExecutionAt: due}}
		try := history.Answer{Status: 400, Code: "RFA_JOB_VALIDATION_FAILED"}
		if c.facts != nil {
			submitted.Job, try = "a", history.Answer{Status: 202, Job: "a", State: client.Created}
		}
		submitted.Submission.Tries = []history.Answer{try}
		s := &story{kind: c.kind, webhook: "w"}
		s.add(submitted, c.facts)
		r := (&tour{o: Options{Patience: time.Minute}, outage: c.outage}).row(s, nil, false)
		require.Equal(t, []string{c.got, c.mark}, []string{r.Got, r.Mark()}, "%d: %s", n, c.kind)
		if c.finding != "" {
			require.Equal(t, []string{c.finding}, r.Findings, n)
		}
		require.Equal(t, c.mark == "so far" || c.mark == "?" || c.finding != "" && c.facts != nil && r.Cut, len(r.Notes) > 0, n)
	}
}

// answers is a service that answers each request with a problem of this status; 0: not at all.
type answers func() (status int)

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	if status := a(); status > 0 {
		return &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {"application/problem+json"}},
			Body: io.NopCloser(strings.NewReader(fmt.Sprintf(`{"status":%d,"code":"RFA_X"}`, status))),
		}, nil
	}
	return nil, errors.New("connection refused")
}

// A service that stays away, or busy, ends the tour; one that comes back does not, nor one that is down on purpose.
func TestTourEndsWithItsService(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(second int) (status int)
		down   bool
		ends   int // after so many seconds; 0: not
		why    string
	}{
		"good":               {answer: func(int) int { return 404 }},
		"away":               {answer: func(int) int { return 0 }, ends: 11, why: "stopped answering during the tour"},
		"busy":               {answer: func(int) int { return 503 }, ends: 91, why: "stays busy"},
		"limited":            {answer: func(int) int { return 429 }, ends: 91, why: "stays busy"},
		"away now and then":  {answer: func(second int) int { return 404 * (second / 10 % 2) }},
		"down on purpose":    {answer: func(int) int { return 0 }, down: true},
		"busy and then away": {answer: func(second int) int { return map[bool]int{true: 503}[second < 60] }, ends: 60, why: "stopped answering"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				service := answers(func() int { return c.answer(int(time.Since(began).Seconds())) })
				stranger, err := client.New(client.Config{URL: "http://service", MaxTries: 1, HTTP: &http.Client{Transport: service}})
				require.NoError(t, err)
				hour, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				ctx, abort := context.WithCancelCause(hour)
				var tr tour
				tr.down.Store(c.down)
				tr.watch(ctx, stranger, abort)
				if c.ends == 0 {
					require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded)
					return
				}
				require.ErrorContains(t, context.Cause(ctx), c.why)
				require.Equal(t, time.Duration(c.ends)*time.Second, time.Since(began))
			})
		})
	}
}
