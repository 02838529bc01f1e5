package tour

import (
	"bytes"
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
	"github.com/forgerun/forgerun/internal/simulator/judge"
	"github.com/forgerun/forgerun/internal/simulator/load"
	"github.com/forgerun/forgerun/internal/simulator/trial"
)

var due = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

func look(state string, attempt int, document *history.Failure) history.Fact {
	return history.Fact{Kind: history.Looked, Told: &history.Job{State: state, Attempt: attempt, Document: document}}
}

func retry(status int, state string) history.Fact {
	return history.Fact{Kind: history.Acted, Action: &history.Action{Verb: "retry", Status: status, State: state}}
}

func told(state string, attempts int, err string) history.Fact {
	return history.Fact{Kind: history.ToldDelivery, Delivery: &history.Delivery{Webhook: "w", State: state, Attempts: attempts, Error: err}}
}

func reported(state string, at time.Duration) history.Fact {
	return history.Fact{Kind: history.ToldReport, Report: &history.Report{Events: []history.Event{{Next: state, At: due.Add(at)}}}}
}

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
		{kind: "FAIL_IMMEDIATE", got: "FAILED", mark: "yes", facts: seen{look("FAILED", 1, &history.Failure{})}},
		{kind: "FAIL_AFTER_RETRYABLE", got: "FAILED, retryable", mark: "yes", facts: seen{look("FAILED", 1, &history.Failure{Retryable: true})}},
		{kind: "RUNS_OVER_TIMEOUT", got: "FAILED, timed out", mark: "yes", facts: seen{look("FAILED", 1, &history.Failure{Status: "TIMED_OUT"})}},
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
		submitted := history.Fact{Kind: history.Submitted, Submission: &history.Submission{WorkKind: c.kind, ExecutionAt: &due}}
		try := history.Try{Status: 400, Code: "RFA_JOB_VALIDATION_FAILED"}
		if c.facts != nil {
			submitted.Job, try = "a", history.Try{Status: 202, Job: "a", State: client.Created}
		}
		submitted.Submission.Tries = []history.Try{try}
		s := &story{kind: c.kind, webhook: "w"}
		s.tell(submitted, c.facts)
		r := (&tour{o: Options{Patience: time.Minute}, outage: c.outage}).row(s, nil, false)
		require.Equal(t, []string{c.got, c.mark}, []string{r.Got, r.mark()}, "%d: %s", n, c.kind)
		if c.finding != "" {
			require.Equal(t, []string{c.finding}, r.Findings, n)
		}
		require.Equal(t, c.mark == "so far" || c.mark == "?" || c.finding != "" && c.facts != nil && r.Cut, len(r.Notes) > 0, n)
	}
}

// What is written down leads back to the kinds, in the order of their tickets, and so does what the judge says.
func TestStoriesAndFindings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := history.Create(dir)
	require.NoError(t, err)
	submitted := func(ticket int64, kind, job string) {
		w.Add(history.Fact{Kind: history.Submitted, Ticket: ticket, Job: job, Submission: &history.Submission{WorkKind: kind,
			Tries: []history.Try{{Status: 202, Job: job, State: client.Queued}}}})
	}
	submitted(2, "DUPLICATE_SUBMIT_DIFFERENT_KEY", "b")
	submitted(1, "DUPLICATE_SUBMIT_DIFFERENT_KEY", "a")
	submitted(3, "WEBHOOK_TIMEOUT", "c")
	for _, job := range []string{"a", "b"} {
		f := succeeded
		f.Job = job
		w.Add(f)
	}
	require.NoError(t, w.Close())
	stories, err := read(dir, []load.Webhook{{ID: "w", Name: "webhook-timeout"}})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, stories["DUPLICATE_SUBMIT_DIFFERENT_KEY"].jobs)
	require.Equal(t, "SUCCEEDED, two jobs", stories["DUPLICATE_SUBMIT_DIFFERENT_KEY"].outcome())
	require.Equal(t, "w", stories["WEBHOOK_TIMEOUT"].webhook)

	tr := &tour{o: Options{Timeout: time.Minute}, trial: &trial.Trial{}, tickets: map[int64]string{4: "RUNS_LONG"}}
	require.NoError(t, tr.choose([]string{"DUPLICATE_SUBMIT_DIFFERENT_KEY", "WEBHOOK_TIMEOUT", "RUNS_LONG"}))
	rows := tr.rows(stories, &judge.Verdict{Violations: []judge.Violation{
		{Job: "b", What: "of a job"}, {Job: "b", What: "of a job"}, {Ticket: 4, What: "of a ticket"}, {What: "of nothing"},
	}}, true)
	findings := map[string][]string{}
	for _, r := range rows {
		findings[r.Kind] = r.Findings
	}
	require.Equal(t, map[string][]string{
		"DUPLICATE_SUBMIT_DIFFERENT_KEY": {"of a job"}, "WEBHOOK_TIMEOUT": {"not finished within 1m0s; last seen QUEUED"},
		"RUNS_LONG": {"not finished within 1m0s; last seen (none)"}, noKind: {"of nothing"},
	}, findings)
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

func TestTable(t *testing.T) {
	t.Parallel()
	right := Row{Kind: "SUCCESS_FAST", Expected: "SUCCEEDED", Got: "SUCCEEDED", Attempts: 1, Duration: 1234567 * time.Nanosecond}
	cut := Row{Kind: "WEBHOOK_RETRIES_EXHAUSTED", Expected: "x", Got: "2 tries so far", Cut: true, Notes: []string{"it goes on"}}
	open := Row{Kind: "RUNS_LONG", Expected: "SUCCEEDED", Open: true}
	wrong := Row{Kind: "CPU_BURST", Expected: "SUCCEEDED", Got: "FAILED\x1b[2J", Findings: make([]string, 10)}
	for n, verdict := range []string{
		"All 1 kinds behaved as the catalogue says, in 1.5s.",
		"All 2 kinds behaved as the catalogue says, in 1.5s, as far as was waited: the end of WEBHOOK_RETRIES_EXHAUSTED was not.",
		"1 of 3 kinds could not be judged: RUNS_LONG.",
		"1 of 4 kinds differ: CPU_BURST.",
	} {
		r := Result{Rows: []Row{right, cut, open, wrong}[:n+1], Took: 1500 * time.Millisecond}
		var text bytes.Buffer
		r.Write(&text)
		require.Contains(t, text.String(), "\n"+verdict+"\n")
		require.Equal(t, n < 2, r.OK())
		if n == 3 {
			require.Regexp(t, `SUCCESS_FAST +SUCCEEDED +SUCCEEDED +1 +1ms +yes\n`, text.String())
			require.Regexp(t, `WEBHOOK_RETRIES_EXHAUSTED +x +2 tries so far +- +- +so far\n`, text.String())
			require.Regexp(t, `RUNS_LONG +SUCCEEDED +- +- +- +\?\n`, text.String())
			require.Contains(t, text.String(), "\nWEBHOOK_RETRIES_EXHAUSTED:\n  - it goes on\n")
			require.Contains(t, text.String(), "  - and 2 more\n")
			require.NotContains(t, text.String(), "\x1b", "what a service says does not get at the terminal")
		}
	}
}
