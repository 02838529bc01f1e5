package notify

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// Short forms of the clients and jobs of the tests below.
var (
	anna, bert   = job.ID{15: 0xa}, job.ID{15: 0xb}
	first, other = job.ID{15: 1}, job.ID{15: 2}
)

func event(id job.ID) job.Notification { return job.Notification{ClientID: anna, JobID: id} }

func progressOf(attempt, percentage int) job.Notification {
	return job.Notification{ClientID: anna, JobID: first, Attempt: attempt, Progress: &job.Progress{Percentage: percentage}}
}

func end(attempt int) job.Notification {
	return job.Notification{ClientID: anna, JobID: first, Attempt: attempt, Ended: true}
}

// sent gives what a merger sends as "<client>:<job>[/attempt@percentage]",
// clients and jobs as one digit, and what it keeps as "=".
func sent(t *testing.T, m *merger) string {
	t.Helper()
	var words []string
	r := m.merged()
	for _, k := range r.kept {
		word := fmt.Sprintf("=%x", k.job[15])
		if k.value != nil {
			for attempt := range 10 {
				if p := readKept(k.value, attempt); p != nil {
					word += fmt.Sprintf("/%d@%d", attempt, p.Percentage)
				}
			}
		}
		if k.ended {
			word += "!"
		}
		words = append(words, word)
	}
	for _, m := range r.messages {
		for line := range strings.Lines(string(m.text)) {
			n := redistest.Must(parseLine(m.client, strings.TrimSuffix(line, "\n")))(t)
			word := fmt.Sprintf("%x:%x", n.ClientID[15], n.JobID[15])
			if n.Progress != nil {
				word += fmt.Sprintf("/%d@%d", n.Attempt, n.Progress.Percentage)
			}
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

func TestMerger(t *testing.T) {
	t.Parallel()
	event, otherEvent := event(first), event(other)
	bertsEvent, batchEvent := job.Notification{ClientID: bert, JobID: job.ID{15: 3}}, job.Notification{ClientID: bert}
	lastWords := progressOf(1, 100)
	lastWords.Ended = true
	p, end := progressOf, end
	for name, test := range map[string]struct {
		notifications []job.Notification
		want          string
	}{
		"nothing":                    {nil, ""},
		"an event":                   {[]job.Notification{event}, "a:1"},
		"events of a job":            {[]job.Notification{event, event, event}, "a:1"},
		"first mention first":        {[]job.Notification{otherEvent, event, bertsEvent, otherEvent, batchEvent, bertsEvent}, "a:2 a:1 b:3 b:0"},
		"the latest progress":        {[]job.Notification{p(1, 10), p(1, 20), p(1, 90)}, "=1/1@90 a:1/1@90"},
		"not backwards":              {[]job.Notification{p(1, 90), p(1, 20)}, "=1/1@90 a:1/1@90"},
		"a newer attempt":            {[]job.Notification{p(1, 90), p(2, 0)}, "=1/2@0 a:1/2@0"},
		"an older attempt":           {[]job.Notification{p(2, 0), p(1, 90)}, "=1/2@0 a:1/2@0"},
		"events around progress":     {[]job.Notification{event, p(1, 1), event, p(1, 2), event}, "=1/1@2 a:1 a:1/1@2 a:1"},
		"an event before":            {[]job.Notification{event, p(1, 1)}, "=1/1@1 a:1 a:1/1@1"},
		"progress before its end":    {[]job.Notification{p(1, 100), end(1)}, "=1/1@100! a:1/1@100 a:1"},
		"both in one":                {[]job.Notification{lastWords}, "=1/1@100! a:1/1@100 a:1"},
		"the end of no attempt":      {[]job.Notification{p(4, 1), end(0)}, "=1/4@1 a:1/4@1 a:1"},
		"progress after its end":     {[]job.Notification{p(1, 50), end(1), p(1, 60)}, "=1/1@50! a:1/1@50 a:1"},
		"the end of an older one":    {[]job.Notification{p(2, 50), end(1)}, "=1/2@50 a:1/2@50 a:1"},
		"the next attempt":           {[]job.Notification{p(1, 50), end(1), p(2, 5)}, "=1/2@5 a:1 a:1/2@5"},
		"the end of unknown attempt": {[]job.Notification{end(1)}, "a:1"},
		"progress of no job":         {[]job.Notification{{ClientID: anna, Attempt: 1, Progress: &job.Progress{}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMerger()
			for _, n := range test.notifications {
				m.add(n)
			}
			require.Equal(t, test.want, sent(t, m))
			m.reset()
			require.Empty(t, sent(t, m))
		})
	}
}

// What one sending knew holds for the next.
func TestMergerRemembersProgress(t *testing.T) {
	t.Parallel()
	m := newMerger()
	for _, send := range []struct {
		notifications job.Notification
		want          string
	}{
		{progressOf(1, 50), "=1/1@50 a:1/1@50"},
		{progressOf(1, 49), ""},
		{progressOf(1, 50), "=1/1@50 a:1/1@50"}, // of another phase, perhaps
		{end(2), "a:1"},
		{end(1), "=1! a:1"},
		{end(1), "a:1"},
		{progressOf(2, 10), "=1/2@10 a:1/2@10"},
		{progressOf(1, 60), ""},
		{end(2), "=1! a:1"},
	} {
		m.add(send.notifications)
		require.Equal(t, send.want, sent(t, m))
		m.reset()
	}
	require.Empty(t, m.steps)
}

func TestMergerForgets(t *testing.T) {
	t.Parallel()
	m := newMerger()
	for range 2*maxSteps + 1 {
		n := progressOf(1, 1)
		n.JobID = redistest.Task().JobID
		m.add(n)
		m.reset()
		require.LessOrEqual(t, len(m.steps), maxSteps)
	}
}

func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	m := newMerger()
	var want []job.ID
	for i := range 3000 {
		n := job.Notification{ClientID: anna, JobID: redistest.Task().JobID}
		if i%2 == 0 {
			n.ClientID = bert
		} else {
			want = append(want, n.JobID)
		}
		m.add(n)
	}
	var got []job.ID
	messages := m.merged().messages
	require.Len(t, messages, 4)
	for _, m := range messages {
		require.Less(t, len(m.text), maxMessage+100)
		for line := range strings.Lines(string(m.text)) {
			n := redistest.Must(parseLine(m.client, strings.TrimSpace(line)))(t)
			if n.ClientID == anna {
				got = append(got, n.JobID)
			}
		}
	}
	require.Equal(t, want, got)
}
