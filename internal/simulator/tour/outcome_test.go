package tour

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

// submission is answered with these jobs, or refused.
func submission(jobs ...string) history.Fact {
	s := &history.Submission{}
	for _, j := range jobs {
		s.Tries = append(s.Tries, history.Try{Status: 202, Job: j, State: client.Queued})
	}
	if len(jobs) == 0 {
		s.Tries = []history.Try{{Status: 400, Code: "RFA_JOB_VALIDATION_FAILED"}}
	}
	return history.Fact{Kind: history.Submitted, Submission: s}
}

func look(state string, attempt int, document *history.Failure) history.Fact {
	return history.Fact{Kind: history.Looked, Job: "a", Told: &history.Job{State: state, Attempt: attempt, Document: document}}
}

func sent(state string, attempts int) history.Fact {
	return history.Fact{Kind: history.ToldDelivery, Job: "a", Delivery: &history.Delivery{Webhook: "w", State: state, Attempts: attempts}}
}

func TestOutcomesInTheWordsOfTheTable(t *testing.T) {
	t.Parallel()
	succeeded := look(client.Succeeded, 1, nil)
	refusal := history.Fact{Kind: history.Acted, Job: "a", Action: &history.Action{Verb: "retry", Status: 409}}
	for n, c := range []struct {
		kind, want string
		facts      []history.Fact
	}{
		{"PAYLOAD_INVALID", "REJECTED", []history.Fact{submission()}},
		{"PAYLOAD_INVALID", "ACCEPTED", []history.Fact{submission("a")}},
		{"SUCCESS_FAST", "", []history.Fact{submission()}},
		{"SUCCESS_FAST", "SUCCEEDED", []history.Fact{submission("a"), succeeded}},
		{"FAIL_IMMEDIATE", "FAILED", []history.Fact{submission("a"), look(client.Failed, 1, &history.Failure{})}},
		{"FAIL_AFTER_RETRYABLE", "FAILED, retryable", []history.Fact{submission("a"), look(client.Failed, 1, &history.Failure{Retryable: true})}},
		{"RUNS_OVER_TIMEOUT", "FAILED, timed out", []history.Fact{
			submission("a"), look(client.Failed, 1, &history.Failure{Status: "TIMED_OUT"}),
		}},
		{"RETRY_ON_FAIL", "FAILED, then SUCCEEDED", []history.Fact{submission("a"), look(client.Succeeded, 2, nil)}},
		{"RETRY_ON_FAIL", "FAILED", []history.Fact{submission("a"), look(client.Failed, 1, nil)}},
		{"RETRY_LIMIT_REACHED", "FAILED, no retry left", []history.Fact{submission("a"), look(client.Failed, 4, nil), refusal}},
		{"SCHEDULED_FAR_FUTURE", "QUEUED, then CANCELED", []history.Fact{submission("a"), look(client.Canceled, 1, nil)}},
		{"DUPLICATE_SUBMIT_SAME_KEY", "SUCCEEDED, same job", []history.Fact{submission("a", "a"), succeeded}},
		{"DUPLICATE_SUBMIT_DIFFERENT_KEY", "SUCCEEDED, two jobs", []history.Fact{submission("b", "a"), succeeded}},
		{"WEBHOOK_SUCCESS", "SUCCEEDED, delivered", []history.Fact{submission("a"), succeeded, sent("DELIVERED", 1)}},
		{"WEBHOOK_5XX", "SUCCEEDED, delivered on retry", []history.Fact{submission("a"), succeeded, sent("DELIVERED", 2)}},
		{"WEBHOOK_SLOW_RECEIVER", "SUCCEEDED, delivered late", []history.Fact{submission("a"), succeeded, sent("DELIVERED", 1)}},
		{"WEBHOOK_RETRIES_EXHAUSTED", "SUCCEEDED, delivery FAILED", []history.Fact{submission("a"), succeeded, sent("FAILED", 4)}},
		{"WEBHOOK_RETRIES_EXHAUSTED", "SUCCEEDED, 2 tries so far", []history.Fact{submission("a"), succeeded, sent("PENDING", 2)}},
	} {
		s := storyOf(c.facts)
		require.Equal(t, c.want, s.outcome(c.kind), "%d", n)
	}
}

// What is particular to a kind is held against the moments of its outage, its time, and the end of its delivery.
func TestWhatIsParticularToAKind(t *testing.T) {
	t.Parallel()
	due := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	after := due.Add
	down := func(down, restarted, ready time.Duration) *OutageTimes {
		return &OutageTimes{Down: after(down), Restarted: after(restarted), Ready: after(ready)}
	}
	for n, c := range []struct {
		kind     string
		outage   *OutageTimes
		queued   time.Duration
		delivery *history.Delivery
		tries    int    // that the service makes
		want     string // "": it is as it should be
	}{
		{kind: "SCHEDULED_ON_TIME", queued: 2 * time.Second},
		{kind: "SCHEDULED_ON_TIME", queued: 3 * time.Second, want: "the job was queued 3s after its time, allowed are 2s"},
		{kind: "SCHEDULED_LATE_RECOVERY", outage: down(-time.Second, time.Second, 2*time.Second), queued: 7 * time.Second},
		{kind: "SCHEDULED_LATE_RECOVERY", outage: down(time.Second, 2*time.Second, 3*time.Second), queued: 4 * time.Second,
			want: "the service took until 1s after the job's time to stop, so nothing was shown"},
		{kind: "SCHEDULED_LATE_RECOVERY", outage: down(-time.Second, 2*time.Second, 3*time.Second), queued: time.Second,
			want: "the job was queued 1s before the service was started again"},
		{kind: "SCHEDULED_LATE_RECOVERY", outage: down(-time.Second, time.Second, 2*time.Second), queued: 8 * time.Second,
			want: "the job was queued 6s after the service was back, allowed are 5s"},
		{kind: "CANCEL_DURING_RUN", want: "the job was canceled before it ran"},
		{kind: "WEBHOOK_RETRIES_EXHAUSTED", delivery: &history.Delivery{State: "PENDING", Attempts: 2}},
		{kind: "WEBHOOK_5XX", delivery: &history.Delivery{State: "PENDING", Attempts: 2},
			want: "the delivery is still PENDING after 2 tries, expected delivered on retry"},
		{kind: "WEBHOOK_RETRIES_EXHAUSTED", delivery: &history.Delivery{State: "PENDING", Attempts: 2}, tries: 4,
			want: "the delivery was not complete within 1m0s"},
		{kind: "WEBHOOK_SUCCESS", want: "got SUCCEEDED, expected delivered on retry"},
	} {
		k := &kindPlay{
			tour: &tour{o: Options{Patience: time.Minute, DeliveryTries: c.tries}}, outage: c.outage,
			Row: Row{Kind: c.kind, Expected: "delivered on retry", Got: "delivered on retry"},
		}
		if c.kind == "WEBHOOK_SUCCESS" {
			k.Got = client.Succeeded
		}
		s := story{due: due, delivery: c.delivery, states: []string{client.Canceled},
			report: &history.Report{Events: []history.Event{{Next: client.Queued, At: after(c.queued)}}}}
		k.compare(&s)
		require.Equal(t, c.delivery != nil, k.Cut, "%d: the end was not waited for", n)
		if c.want == "" {
			require.Empty(t, k.Findings, n)
		} else {
			require.Equal(t, []string{c.want}, k.Findings, n)
		}
	}
}

// Why a tour ended early is a difference of what had not ended, unless nobody could tell.
func TestWhatWasCutShort(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cause error
		want  string
	}{
		{nil, ""}, {errTimeUp, "not finished within 1m0s; last seen (none)"},
		{fmt.Errorf("%w: GET /v1/jobs/1 was answered 503", errBusy), "the service stays busy: GET /v1/jobs/1 was answered 503"}, {errAway, ""},
	} {
		k := &kindPlay{tour: &tour{o: Options{Timeout: time.Minute}, facts: newLedger()}}
		k.ended(c.cause)
		require.Equal(t, errors.Is(c.cause, errAway), k.Err != nil)
		require.Equal(t, c.want != "", len(k.Findings) == 1)
		for _, found := range k.Findings {
			require.Equal(t, c.want, found)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	right := Row{Kind: "SUCCESS_FAST", Expected: "SUCCEEDED", Got: "SUCCEEDED", Attempts: 1, Duration: 1234567 * time.Nanosecond}
	cut := Row{Kind: "WEBHOOK_RETRIES_EXHAUSTED", Expected: "x", Got: "2 tries so far", Cut: true, Notes: []string{"it goes on"}}
	open := Row{Kind: "RUNS_LONG", Expected: "SUCCEEDED", Err: fmt.Errorf("%w: gone", errAway)}
	wrong := Row{Kind: "CPU_BURST", Expected: "SUCCEEDED", Got: "FAILED\x1b[2J", Findings: make([]string, 10)}
	for n, verdict := range []string{
		"All 1 kinds behaved as the catalogue says, in 1.5s.",
		"All 2 kinds behaved as the catalogue says, in 1.5s, as far as was waited: the end of WEBHOOK_RETRIES_EXHAUSTED was not.",
		"1 of 3 kinds could not be judged: RUNS_LONG.",
		"1 of 4 kinds differ: CPU_BURST.",
	} {
		rows := []Row{right, cut, open, wrong}[:n+1]
		r := Result{Address: "http://service", Rows: rows, Took: 1500 * time.Millisecond}
		var text bytes.Buffer
		r.Write(&text)
		require.Contains(t, text.String(), "\n"+verdict+"\n")
		require.Regexp(t, `SUCCESS_FAST +SUCCEEDED +SUCCEEDED +1 +1ms +yes\n`, text.String())
		require.Equal(t, len(rows) < 3, r.OK())
		require.Equal(t, len(rows) > 2, errors.Is(r.Away(), errAway))
		if len(rows) < 4 {
			continue
		}
		require.Regexp(t, `WEBHOOK_RETRIES_EXHAUSTED +x +2 tries so far +- +- +so far\n`, text.String())
		require.Regexp(t, `RUNS_LONG +SUCCEEDED +- +- +- +\?\n`, text.String())
		require.Contains(t, text.String(), "\nWEBHOOK_RETRIES_EXHAUSTED:\n  - it goes on\n")
		require.Contains(t, text.String(), "  - and 2 more\n")
		require.NotContains(t, text.String(), "\x1b", "what a service says does not get at the terminal")
		require.ErrorContains(t, r.Away(), "the service at http://service stopped answering during the tour")
	}
}
