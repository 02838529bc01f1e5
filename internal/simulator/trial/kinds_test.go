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

func poll(state string, attempt int) history.Fact {
	return history.Fact{Kind: history.Looked, Shown: &history.Job{Job: client.Job{State: state, Attempt: attempt}}}
}

func acted(verb string, status int) history.Fact {
	return history.Fact{Kind: history.Acted, Action: &history.Answer{Verb: verb, Status: status}}
}

func reported(state string, at time.Duration) history.Fact {
	return history.Fact{Kind: history.APIReport, Report: &history.Report{Events: []history.Event{{Next: state, At: due.Add(at)}}}}
}

func TestOutcomesOfWorkKinds(t *testing.T) {
	t.Parallel()
	succeeded := poll("SUCCEEDED", 1)
	down := outage{due.Add(-time.Second), due.Add(time.Second), due.Add(2 * time.Second)}
	type seen = []history.Fact
	for n, c := range []struct {
		want    string
		facts   seen
		outage  outage
		finding string
	}{
		{want: "SUCCEEDED, delivery PENDING", facts: seen{succeeded, {Kind: history.APIDelivery, Delivery: &history.Delivery{
			EventName: "job.succeeded", State: "PENDING", Attempts: 2,
		}}}},
		{want: "SUCCEEDED", facts: seen{succeeded, reported("QUEUED", 2*time.Second)}},
		{want: "SUCCEEDED", facts: seen{succeeded, reported("QUEUED", 3*time.Second)},
			finding: "it was queued 3s after its execution time, but only 2s are allowed"},
		{want: "SUCCEEDED", facts: seen{succeeded, reported("QUEUED", 7*time.Second)}, outage: down},
		{want: "SUCCEEDED", facts: seen{succeeded, reported("QUEUED", 8*time.Second)}, outage: down,
			finding: "it was queued 6s after the service was back, but only 5s are allowed"},
		{want: "SUCCEEDED", facts: seen{succeeded, reported("QUEUED", 0)}, outage: down,
			finding: "it became due while the service was down, but was queued 1s before the service was started again"},
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

func submitted(ticket int64, facts []history.Fact) *story {
	return newStory(history.Fact{Kind: history.Submitted, Ticket: ticket, Job: "a", Submission: &history.Submission{
		ExecutionAt: due, Tries: []history.Answer{{Status: 202, Job: "a"}},
	}}, facts)
}

func TestWorkKindOfSeveralJobs(t *testing.T) {
	t.Parallel()
	succeeded := []history.Fact{poll("SUCCEEDED", 1)}
	overtaken := []history.Fact{poll("SUCCEEDED", 1), acted("cancel", 409)}
	canceled := []history.Fact{acted("cancel", 200), poll("CANCELED", 1), acted("cancel", 409)}
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
