package tasks

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// Short forms of the clients and jobs of the tests below.
var (
	anna, bert   = job.ID{15: 0xa}, job.ID{15: 0xb}
	first, other = job.ID{15: 1}, job.ID{15: 2}
)

func eventNews(id job.ID) job.Notification { return job.Notification{ClientID: anna, JobID: id} }

func progressNews(attempt, percentage int) job.Notification {
	return job.Notification{ClientID: anna, JobID: first, Attempt: attempt, Progress: &job.Progress{Percentage: percentage}}
}

func endNews(attempt int) job.Notification {
	return job.Notification{ClientID: anna, JobID: first, Attempt: attempt, Ended: true}
}

// told gives what a digest sends as "<client>:<job>[/attempt@percentage]",
// clients and jobs as one digit, and what it keeps as "=".
func told(t *testing.T, d *digest) string {
	t.Helper()
	var words []string
	r := d.report()
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
			n, err := parseNews(m.client, strings.TrimSuffix(line, "\n"))
			require.NoError(t, err)
			word := fmt.Sprintf("%x:%x", n.ClientID[15], n.JobID[15])
			if n.Progress != nil {
				word += fmt.Sprintf("/%d@%d", n.Attempt, n.Progress.Percentage)
			}
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

func TestDigest(t *testing.T) {
	t.Parallel()
	event, otherEvent := eventNews(first), eventNews(other)
	bertsEvent, batchEvent := job.Notification{ClientID: bert, JobID: job.ID{15: 3}}, job.Notification{ClientID: bert}
	lastWords := progressNews(1, 100)
	lastWords.Ended = true
	p, end := progressNews, endNews
	for name, test := range map[string]struct {
		news []job.Notification
		want string
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
			d := newDigest()
			for _, n := range test.news {
				d.add(n)
			}
			require.Equal(t, test.want, told(t, d))
			require.Equal(t, len(test.news), d.news)
			d.reset()
			require.Empty(t, told(t, d))
		})
	}
}

// What one sending knew holds for the next.
func TestDigestRemembersProgress(t *testing.T) {
	t.Parallel()
	d := newDigest()
	for _, send := range []struct {
		news job.Notification
		want string
	}{
		{progressNews(1, 50), "=1/1@50 a:1/1@50"},
		{progressNews(1, 49), ""},
		{progressNews(1, 50), "=1/1@50 a:1/1@50"}, // of another phase, perhaps
		{endNews(2), "a:1"},
		{endNews(1), "=1! a:1"},
		{endNews(1), "a:1"},
		{progressNews(2, 10), "=1/2@10 a:1/2@10"},
		{progressNews(1, 60), ""},
		{endNews(2), "=1! a:1"},
	} {
		d.add(send.news)
		require.Equal(t, send.want, told(t, d))
		d.reset()
	}
	require.Empty(t, d.steps)
}

func TestDigestForgets(t *testing.T) {
	t.Parallel()
	d := newDigest()
	for range 2*maxSteps + 1 {
		n := progressNews(1, 1)
		n.JobID = newTask().JobID
		d.add(n)
		d.reset()
		require.LessOrEqual(t, len(d.steps), maxSteps)
	}
}

func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	d := newDigest()
	var want []job.ID
	for i := range 3000 {
		n := job.Notification{ClientID: anna, JobID: newTask().JobID}
		if i%2 == 0 {
			n.ClientID = bert
		} else {
			want = append(want, n.JobID)
		}
		d.add(n)
	}
	var got []job.ID
	messages := d.report().messages
	require.Len(t, messages, 4)
	for _, m := range messages {
		require.Less(t, len(m.text), maxMessage+100)
		for line := range strings.Lines(string(m.text)) {
			n, err := parseNews(m.client, strings.TrimSpace(line))
			require.NoError(t, err)
			if n.ClientID == anna {
				got = append(got, n.JobID)
			}
		}
	}
	require.Equal(t, want, got)
}
