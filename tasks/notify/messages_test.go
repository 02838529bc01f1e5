package notify

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
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
		"nothing":                 {nil, ""},
		"an event":                {[]job.Notification{event}, "a:1"},
		"events of a job":         {[]job.Notification{event, event, event}, "a:1"},
		"first mention first":     {[]job.Notification{otherEvent, event, bertsEvent, otherEvent, batchEvent, bertsEvent}, "a:2 a:1 b:3 b:0"},
		"the latest progress":     {[]job.Notification{p(1, 10), p(1, 20), p(1, 90)}, "=1/1@90 a:1/1@90"},
		"a newer attempt":         {[]job.Notification{p(1, 90), p(2, 0)}, "=1/2@0 a:1/2@0"},
		"events around progress":  {[]job.Notification{event, p(1, 1), event, p(1, 2), event}, "=1/1@2 a:1 a:1/1@2 a:1"},
		"an event before":         {[]job.Notification{event, p(1, 1)}, "=1/1@1 a:1 a:1/1@1"},
		"progress before its end": {[]job.Notification{p(1, 100), end(1)}, "=1/1@100! a:1/1@100 a:1"},
		"both in one":             {[]job.Notification{lastWords}, "=1/1@100! a:1/1@100 a:1"},
		"the end of no attempt":   {[]job.Notification{p(4, 1), end(0)}, "=1/4@1 a:1/4@1 a:1"},
		"the end of an older one": {[]job.Notification{p(2, 50), end(1)}, "=1/2@50 a:1/2@50 a:1"},
		"the next attempt":        {[]job.Notification{p(1, 50), end(1), p(2, 5)}, "=1/2@5 a:1 a:1/2@5"},
		"the end alone":           {[]job.Notification{end(1)}, "=1! a:1"},
		"progress of no job":      {[]job.Notification{{ClientID: anna, Attempt: 1, Progress: &job.Progress{}}}, ""},
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

func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	m, ids := newMerger(), redistest.IDs(3000)
	for _, id := range ids {
		m.add(event(id))
	}
	messages := m.merged().messages
	require.Len(t, messages, 4)
	var got []job.ID
	for _, m := range messages {
		require.Less(t, len(m.text), maxMessage+100)
		for line := range strings.Lines(string(m.text)) {
			got = append(got, redistest.Must(parseLine(m.client, strings.TrimSpace(line)))(t).JobID)
		}
	}
	require.Equal(t, ids, got)
}

// requireProgress waits until the progress can be read.
func requireProgress(t *testing.T, p *Publisher, id job.ID, attempt int, want *job.Progress) {
	t.Helper()
	redistest.Eventually(t, func() bool {
		got := p.Progress(t.Context(), id, attempt)
		return got != nil && *got == *want
	})
}

func TestProgress(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	p := startPublisherFor(t, r, 20*time.Minute)
	ctx, key := t.Context(), progressKey(first)
	require.Nil(t, p.Progress(ctx, first, 1))
	want := &job.Progress{
		Percentage: 30, Phase: "RENDERING", StepsCompleted: 3, StepsTotal: 10, ItemsProcessed: 299, ItemsTotal: 1000,
		UpdatedAt: time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC),
	}
	n := job.Notification{ClientID: anna, JobID: first, Attempt: 2, Progress: want}
	p.Publish(n)
	requireProgress(t, p, first, 2, want)
	require.Nil(t, p.Progress(ctx, first, 1))
	require.Nil(t, p.Progress(ctx, first, 3))
	require.Nil(t, p.Progress(ctx, other, 2))
	require.InDelta(t, 1200, r.Client.TTL(ctx, key).Val().Seconds(), 60)

	p.Publish(end(2))
	redistest.Eventually(t, func() bool { return r.Client.TTL(ctx, key).Val() <= progressRest })
	requireProgress(t, p, first, 2, want)
	require.NoError(t, r.Client.PExpire(ctx, key, time.Millisecond).Err())
	redistest.Eventually(t, func() bool { return p.Progress(ctx, first, 2) == nil && r.Client.Exists(ctx, key).Val() == 0 })
}

func TestGarbageIsNoProgress(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	p := NewPublisher(r, time.Hour)
	ctx, key := t.Context(), progressKey(first)
	for _, value := range []string{
		"", "1", "null", "{", `{"attempt":1}`, `{"attempt":1,"progress":null}`, `{"attempt":1,"progress":[]}`,
		`{"attempt":1,"progress":{"percentage":101}}`, `{"attempt":1,"progress":{"percentage":-1}}`,
		`{"attempt":1,"progress":{"percentage":"9"}}`, `{"attempt":"1","progress":{}}`, `{"attempt":1,"progress":{}}{}`,
	} {
		require.NoError(t, r.Client.Set(ctx, key, value, 0).Err())
		require.Nil(t, p.Progress(ctx, first, 1), value)
	}
	require.NoError(t, r.Client.Set(ctx, key, `{"attempt":1,"progress":{"percentage":7}}`, 0).Err())
	requireProgress(t, p, first, 1, &job.Progress{Percentage: 7})

	require.NoError(t, r.Client.Del(ctx, key).Err())
	require.NoError(t, r.Client.LPush(ctx, key, "x").Err())
	redistest.Eventually(t, func() bool {
		require.Nil(t, p.Progress(ctx, first, 1))
		return testutil.ToFloat64(r.Metrics.Errors.WithLabelValues("progress")) > 0
	})
}

// A Redis that is gone or hangs costs the first reader a moment and the others
// nothing.
func TestProgressWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	p := startPublisher(t, r)
	p.Publish(progressOf(1, 10))
	requireProgress(t, p, first, 1, &job.Progress{Percentage: 10})

	require.NoError(t, server.Pause())
	for range 1000 {
		require.Nil(t, p.Progress(t.Context(), first, 1))
	}
	require.Less(t, testutil.ToFloat64(r.Metrics.Errors.WithLabelValues("progress")), 10., "few ask")
	require.True(t, p.reading.IsOpen())
	require.False(t, p.events.cfg.Circuit.IsOpen(), "slow reading does not end publishing")
	require.False(t, p.signals.cfg.Circuit.IsOpen())
	require.NoError(t, server.Resume())
	requireProgress(t, p, first, 1, &job.Progress{Percentage: 10})

	require.NoError(t, server.Kill())
	require.Nil(t, p.Progress(t.Context(), first, 1))
	require.NoError(t, server.Start(t.Context()))
	p.Publish(progressOf(1, 20))
	redistest.Eventually(t, func() bool { // the one before may have been lost with the restart
		p.Publish(progressOf(1, 20))
		return p.Progress(t.Context(), first, 1) != nil
	})
}

func TestBadLines(t *testing.T) {
	t.Parallel()
	id := redistest.Task().JobID.String()
	for _, line := range []string{
		"", " ", "--", id[1:], id + " ", id + " 1", id + " 1 ", id + " 1 null", id + " 1 {", id + " 0 {}", id + " -1 {}",
		id + " x {}", "- 1 {}", " " + id, "{" + id + "}", id + " 1 []", id + ` 1 {"percentage":101}`,
		id + ` 1 {"percentage":-1}`, id + ` 1 {"items_total":-1}`, id + ` 1 {"percentage":1} {}`,
		id + ` 1 {"updated_at":"yesterday"}`, id + " 99999999999999999999 {}", id + "\r",
	} {
		got, err := parseLine(job.ID{1}, line)
		require.ErrorIs(t, err, errBadLine, "%q", line)
		require.Zero(t, got)
	}
}
