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

// merged shows updates as text: "1:2/1@50+" means client 1, job 2, attempt 1, 50 % and an event. "!" is the end of the attempt.
func merged(ns []job.Notification) string {
	var words []string
	for _, u := range merge(ns) {
		word := fmt.Sprintf("%x:%x", u.client[15], u.Job[15])
		if u.Progress != nil {
			word += fmt.Sprintf("/%d@%d", u.Attempt, u.Progress.Percentage)
		}
		if u.Event {
			word += "+"
		}
		if u.ended {
			word += "!"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestMerge(t *testing.T) {
	t.Parallel()
	event, otherEvent := event(first), event(other)
	bertsEvent, batchEvent := job.Notification{ClientID: bert, JobID: job.ID{15: 3}}, job.Notification{ClientID: bert}
	lastWords, late := progressOf(1, 100), progressOf(1, 1)
	lastWords.Ended, late.Progress.UpdatedAt = true, job.Time(time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC))
	p := progressOf
	for name, test := range map[string]struct {
		notifications []job.Notification
		want          string
	}{
		"events of a job":           {[]job.Notification{event, event, event}, "a:1+"},
		"order of first mention":    {[]job.Notification{otherEvent, event, bertsEvent, otherEvent, batchEvent}, "a:2+ a:1+ b:3+ b:0+"},
		"the latest progress":       {[]job.Notification{p(1, 10), p(1, 20), p(1, 90)}, "a:1/1@90"},
		"a newer attempt":           {[]job.Notification{p(1, 90), p(2, 0)}, "a:1/2@0"},
		"events around progress":    {[]job.Notification{event, p(1, 1), event, p(1, 2)}, "a:1/1@2+"},
		"progress before its end":   {[]job.Notification{p(1, 100), end(1)}, "a:1/1@100+!"},
		"progress with its end":     {[]job.Notification{lastWords}, "a:1/1@100+!"},
		"an end without an attempt": {[]job.Notification{p(4, 1), end(0)}, "a:1/4@1+"},
		"end of an older attempt":   {[]job.Notification{p(2, 50), end(1)}, "a:1/2@50+"},
		"the next attempt":          {[]job.Notification{p(1, 50), end(1), p(2, 5)}, "a:1/2@5+"},
		"the end alone":             {[]job.Notification{end(1)}, "a:1+!"},
		"progress of no job":        {[]job.Notification{{ClientID: anna, Attempt: 1, Progress: &job.Progress{}}}, "a:0"},
		"year beyond JSON":          {[]job.Notification{late}, "a:1"},
	} {
		require.Equal(t, test.want, merged(test.notifications), name)
	}
}

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
	p := redistest.Start(t, NewPublisher(r, 20*time.Minute))
	ctx, key := t.Context(), progressKey(first)
	require.Nil(t, p.Progress(ctx, first, 1))
	want := &job.Progress{
		Percentage: 30, Phase: "RENDERING", StepsCompleted: 3, StepsTotal: 10, ItemsProcessed: 299, ItemsTotal: 1000,
		UpdatedAt: job.Time(time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC)),
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
	require.Less(t, testutil.ToFloat64(r.Metrics.Errors.WithLabelValues("progress")), 10., "few calls ask Redis")
	require.True(t, p.reading.IsOpen())
	require.False(t, p.events.Circuit.IsOpen(), "slow reads do not stop publishing")
	require.False(t, p.signals.Circuit.IsOpen())
	require.NoError(t, server.Resume())
	requireProgress(t, p, first, 1, &job.Progress{Percentage: 10})
}
