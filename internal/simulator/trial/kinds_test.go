package trial

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/judge"
)

var due = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

func poll(state string, attempt int, document *client.Outcome) history.Fact {
	return history.Fact{Kind: history.Looked, Shown: &history.Job{Job: client.Job{State: state, Attempt: attempt, Failure: document}}}
}

func acted(verb string, status int) history.Fact {
	return history.Fact{Kind: history.Acted, Action: &history.Answer{Verb: verb, Status: status}}
}

func delivery(state string, attempts int) history.Fact {
	return history.Fact{Kind: history.APIDelivery, Delivery: &history.Delivery{EventName: "job.succeeded", State: state, Attempts: attempts}}
}

func reported(state string, at time.Duration) history.Fact {
	return history.Fact{Kind: history.APIReport, Report: &history.Report{Events: []history.Event{{Next: state, At: due.Add(at)}}}}
}

// Each outcome that a scenario may expect is derived from the observations of a job.
func TestOutcomesOfWorkKinds(t *testing.T) {
	t.Parallel()
	retryable, err := client.ParseOutcome("", []byte(`{"retryable":true}`))
	require.NoError(t, err)
	timedOut := &client.Outcome{OutcomeDocument: client.OutcomeDocument{JobStatus: "TIMED_OUT"}}
	listed := history.Fact{Kind: history.ListedJob, Shown: &history.Job{Job: client.Job{State: "FAILED", Attempt: 1}}}
	succeeded := poll("SUCCEEDED", 1, nil)
	down := outage{due.Add(-time.Second), due.Add(time.Second), due.Add(2 * time.Second)}
	type seen = []history.Fact
	for n, c := range []struct {
		want    string
		facts   seen
		outage  outage
		finding string
	}{
		{want: "REJECTED"},
		{want: "SUCCEEDED", facts: seen{succeeded}},
		{want: "FAILED", facts: seen{poll("FAILED", 1, &client.Outcome{})}},
		{want: "FAILED, retryable", facts: seen{poll("FAILED", 1, retryable), listed}},
		{want: "FAILED, timed out", facts: seen{poll("FAILED", 1, timedOut)}},
		{want: "FAILED, then SUCCEEDED", facts: seen{acted("retry", 200), poll("SUCCEEDED", 2, nil)}},
		{want: "FAILED, no retry left", facts: seen{acted("retry", 200), poll("FAILED", 4, nil), acted("retry", 409)}},
		{want: "CANCELED, never ran", facts: seen{acted("cancel", 200), poll("CANCELED", 1, nil)}},
		{want: "CANCELED, while it ran", facts: seen{poll("CANCELED", 1, nil), reported("RUNNING", 0)}},
		{want: "SUCCEEDED, delivered", facts: seen{succeeded, delivery("DELIVERED", 1)}},
		{want: "SUCCEEDED, delivered on retry", facts: seen{succeeded, delivery("DELIVERED", 2)}},
		{want: "SUCCEEDED, delivery FAILED", facts: seen{succeeded, delivery("FAILED", 4)}},
		{want: "SUCCEEDED, delivery PENDING", facts: seen{succeeded, delivery("PENDING", 2)}},
		{want: "SUCCEEDED", facts: seen{succeeded, reported("QUEUED", 2*time.Second)}},
		{want: "SUCCEEDED", facts: seen{succeeded, reported("QUEUED", 3*time.Second)},
			finding: "it was queued 3s after its execution time, but only 2s are allowed"},
		{want: "SUCCEEDED", facts: seen{succeeded, reported("QUEUED", 7*time.Second)}, outage: down},
		{want: "SUCCEEDED", facts: seen{succeeded, reported("QUEUED", 8*time.Second)}, outage: down,
			finding: "it was queued 6s after the service was back, but only 5s are allowed"},
		{want: "SUCCEEDED", facts: seen{succeeded, reported("QUEUED", 0)}, outage: down,
			finding: "it was queued 1s before the service was started again"},
	} {
		s := submitted(1, c.facts)
		r := (&Trial{outage: c.outage}).workKind("KIND", c.want, []*story{s}, nil)
		require.Equal(t, c.want, r.Got, n)
		require.Equal(t, c.finding == "", r.OK(), n)
		if c.finding != "" {
			require.Equal(t, []string{c.finding}, r.Findings, n)
		}
	}
}

// submitted returns the story of a submission with these facts about its job. Without facts, the submission was refused.
func submitted(ticket int64, facts []history.Fact) *story {
	f := history.Fact{Kind: history.Submitted, Ticket: ticket, Submission: &history.Submission{ExecutionAt: due, Tries: []history.Answer{
		{Status: 400, Code: "RFA_JOB_VALIDATION_FAILED"},
	}}}
	if facts != nil {
		f.Job, f.Submission.Tries = "a", []history.Answer{{Status: 202, Job: "a"}}
	}
	return newStory(f, facts)
}

// A kind with several jobs meets the expectation if all jobs do. A job that ended before its cancel arrived does not count.
func TestWorkKindOfSeveralJobs(t *testing.T) {
	t.Parallel()
	succeeded := []history.Fact{poll("SUCCEEDED", 1, nil)}
	overtaken := []history.Fact{poll("SUCCEEDED", 1, nil), acted("cancel", 409)}
	canceled := []history.Fact{acted("cancel", 200), poll("CANCELED", 1, nil), acted("cancel", 409)}
	for n, c := range []struct {
		jobs [][]history.Fact
		want string
	}{
		{nil, "nothing"},
		{[][]history.Fact{canceled, succeeded}, "SUCCEEDED"},
		{[][]history.Fact{succeeded, canceled}, "SUCCEEDED"},
		{[][]history.Fact{canceled, canceled}, "CANCELED, never ran"},
		{[][]history.Fact{overtaken, canceled, overtaken}, "CANCELED, never ran"},
		{[][]history.Fact{overtaken, overtaken}, "SUCCEEDED"},
	} {
		var stories []*story
		for i, facts := range c.jobs {
			stories = append(stories, submitted(int64(i+1), facts))
		}
		require.Equal(t, c.want, (&Trial{}).workKind("KIND", "CANCELED, never ran", stories, nil).Got, n)
	}
	found := []judge.Violation{{Job: "a", What: "the job ended twice"}, {Ticket: 1, What: "the job ended twice"}, {Job: "b", What: "x"}}
	r := (&Trial{}).workKind("KIND", "SUCCEEDED", []*story{submitted(1, succeeded)}, found)
	require.Equal(t, []string{"the job ended twice"}, r.Findings)
	require.False(t, r.OK())
}
