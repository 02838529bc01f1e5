package job_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func ref[T any](v T) *T { return &v }

func failing(failures ...job.PlannedFailure) job.Behavior { return job.Behavior{Failures: failures} }

func event(name string, after time.Duration) job.PlannedEvent {
	return job.PlannedEvent{Emission: job.Emission{Name: name}, After: after}
}

func TestBehaviorCheck(t *testing.T) {
	t.Parallel()
	second := ref(time.Second)
	for name, c := range map[string]struct {
		b    job.Behavior
		want []string
	}{
		"nothing": {job.Behavior{}, nil},
		"all": {job.Behavior{Duration: time.Minute, Jitter: 30 * time.Second, Failures: []job.PlannedFailure{
			{Attempts: []int{1, 2}, After: second, Problem: job.PlannedProblem{RetryAfter: 3}}, {Attempts: []int{4}},
		}, Emit: []job.PlannedEvent{{After: time.Minute}}}, nil},
		"as long as the limit":                 {job.Behavior{Duration: maxRuntime}, []string{"/duration"}},
		"as long as the limit with the jitter": {job.Behavior{Duration: maxRuntime - time.Second, Jitter: time.Second}, []string{"/jitter"}},
		"jitter without a duration":            {job.Behavior{Jitter: time.Second}, []string{"/jitter"}},
		"failure after the end":                {failing(job.PlannedFailure{Attempts: []int{1}, After: second}), []string{"/failures/0/after"}},
		"event after the end":                  {job.Behavior{Emit: []job.PlannedEvent{{}, {After: time.Second}}}, []string{"/emit/1/after"}},
		"attempts overlap": {failing(job.PlannedFailure{Attempts: []int{1, 2}}, job.PlannedFailure{Attempts: []int{3, 2}}),
			[]string{"/failures/1/attempts/1"}},
		"an attempt twice": {failing(job.PlannedFailure{Attempts: []int{1, 1}}), []string{"/failures/0/attempts/1"}},
		"retry_after without a retry": {failing(job.PlannedFailure{Attempts: []int{1},
			Problem: job.PlannedProblem{Retryable: ref(false), RetryAfter: 1}}), []string{"/failures/0/problem/retryAfter"}},
		"several violations": {job.Behavior{Jitter: 1, Failures: []job.PlannedFailure{{After: second}},
			Emit: []job.PlannedEvent{{After: 1}}},
			[]string{"/jitter", "/failures/0/after", "/emit/0/after"}},
	} {
		catalogue := fullCatalogue()
		catalogue.TestBed = true
		var got []string
		for _, v := range catalogue.Check(job.Request{Type: job.Execute, WorkKind: job.Custom, Behavior: &c.b}) {
			require.NotEmpty(t, v.Detail, name)
			got = append(got, strings.TrimPrefix(v.Pointer, "/params/behavior"))
		}
		require.Equal(t, c.want, got, name)
	}
	require.Equal(t, []string{"/work_kind"}, pointers(fullCatalogue().Check(job.Request{Type: job.Execute, WorkKind: job.Custom})))
	catalogue := fullCatalogue()
	catalogue.TestBed = true
	require.Empty(t, catalogue.Check(job.Request{Type: job.Execute, WorkKind: job.Custom}), "without a behavior")
}

func TestDefineCustom(t *testing.T) {
	t.Parallel()
	d := job.DefineCustom(job.Execute, nil, requestedAt, nil)
	require.Equal(t, job.Definition{WorkKind: job.Custom, PayloadSize: 1024, ExpectedOutcome: "SUCCEEDED", Seed: requestedAt.UnixMicro(),
		Behavior: &job.Behavior{}}, d)
	require.NoError(t, d.Validate())
	d = job.DefineCustom(job.EmitEvent, &job.Behavior{Seed: ref(int64(7)), Duration: 1500 * time.Millisecond,
		Failures: []job.PlannedFailure{{Attempts: []int{1}}}, Result: job.PlannedResult{Body: ref("")}}, requestedAt, nil)
	require.EqualValues(t, 7, d.Seed)
	require.EqualValues(t, 1500, d.DurationMS)
	require.Equal(t, "FAILED", d.ExpectedOutcome)
	require.True(t, d.ShouldFail)
	require.Zero(t, d.PayloadSize)
	require.Equal(t, job.EventEmitted, d.Emit.Name)
	require.NoError(t, d.Validate())

	d.Retry = &job.RetryPolicy{
		MaxAttempts: 3, Strategy: job.Listed, Delays: []time.Duration{1500 * time.Millisecond}, Codes: []job.Code{job.CodeTimeout},
	}
	stored := must(json.Marshal(d))(t)
	var read job.Definition
	require.NoError(t, json.Unmarshal(stored, &read))
	require.Equal(t, d, read)
	for name, damage := range map[string]func(*job.Definition){
		"no behavior":       func(d *job.Definition) { d.Behavior = nil },
		"negative duration": func(d *job.Definition) { d.Behavior.Duration = -1 },
		"steps":             func(d *job.Definition) { d.Behavior.Steps = 101 },
		"memory":            func(d *job.Definition) { d.Behavior.MemoryBytes = job.MaxBehaviorMemory + 1 },
		"size":              func(d *job.Definition) { d.PayloadSize = job.MaxResultBytes + 1 },
	} {
		bad := job.DefineCustom(job.Execute, nil, requestedAt, nil)
		damage(&bad)
		require.ErrorIs(t, bad.Validate(), job.ErrBadDefinition, name)
	}
}

func TestTimeline(t *testing.T) {
	t.Parallel()
	d := job.DefineCustom(job.Execute, &job.Behavior{Duration: 10 * time.Second, Jitter: 2 * time.Second,
		Failures: []job.PlannedFailure{{Attempts: []int{1}, After: ref(4 * time.Second)}, {Attempts: []int{3}}},
		Emit:     []job.PlannedEvent{event("last", 10*time.Second), event("b", 4*time.Second), event("c", 4*time.Second), event("a", 0)}},
		requestedAt, nil)
	first := d.Timeline(1)
	require.Equal(t, 4*time.Second, first.End)
	require.NotNil(t, first.Failure)
	require.Equal(t, []string{"a", "b", "c"}, eventsOf(first))
	second := d.Timeline(2)
	require.Nil(t, second.Failure)
	require.Equal(t, []string{"a", "b", "c", "last"}, eventsOf(second))
	require.Equal(t, second.Duration, second.End)
	require.NotEqual(t, first.Duration, second.Duration, "each attempt has its own jitter")
	require.Equal(t, d.Timeline(3).Duration, d.Timeline(3).End, "the failure is at the end")
	require.Equal(t, second, d.Timeline(2))

	shortest, longest := time.Hour, time.Duration(0)
	for seed := range int64(1_000) {
		d.Seed = seed
		timeline := d.Timeline(2)
		shortest, longest = min(shortest, timeline.Duration), max(longest, timeline.Duration)
		last := timeline.Events[len(timeline.Events)-1]
		require.LessOrEqual(t, last.After, timeline.End)
	}
	require.InDelta(t, 8, shortest.Seconds(), 0.1)
	require.InDelta(t, 12, longest.Seconds(), 0.1)
	require.GreaterOrEqual(t, shortest, 8*time.Second)
	require.LessOrEqual(t, longest, 12*time.Second)
}

func eventsOf(t job.Timeline) (names []string) {
	for _, e := range t.Events {
		names = append(names, e.Name)
	}
	return names
}

func TestPlannedFailure(t *testing.T) {
	t.Parallel()
	backoff := job.Backoff{Base: 8 * time.Second, Max: time.Minute}
	held := job.Held{ClaimID: job.ClaimID{Attempt: 1}, MaxAttempts: 3, AutoRetry: true}
	f := held.FailAsPlanned(&job.PlannedFailure{}, backoff, 0.5)
	require.Equal(t, &job.Failure{Reason: job.CustomFailed, Code: job.CodeDependencyTimeout, Retryable: true, RetryAfter: 8,
		Stage: job.StageProcessing, Detail: job.CustomFailed.Spec().Detail}, f.Failure)
	require.Equal(t, 4*time.Second, *f.RetryWait, "the backoff")

	problem := job.PlannedProblem{RetryAfter: 2, Stage: job.StageStorage, Detail: "d", Code: job.CodeTimeout}
	f = held.FailAsPlanned(&job.PlannedFailure{Problem: problem}, backoff, 0.5)
	require.Equal(t, &job.Failure{Reason: job.CustomFailed, Code: job.CodeTimeout, Retryable: true, RetryAfter: 2, Stage: job.StageStorage,
		Detail: "d"}, f.Failure)
	require.Equal(t, 2*time.Second, *f.RetryWait, "the planned retry_after")

	f = held.FailAsPlanned(&job.PlannedFailure{Problem: job.PlannedProblem{Retryable: ref(false)}}, backoff, 0.5)
	require.False(t, f.Failure.Retryable)
	require.Zero(t, f.Failure.RetryAfter)
	require.Equal(t, job.CodeInternal, f.Failure.Code)
	require.Nil(t, f.RetryWait)
}

func TestRetryWait(t *testing.T) {
	t.Parallel()
	backoff := job.Backoff{Base: 8 * time.Second, Max: time.Minute}
	ended := requestedAt
	b := failing(job.PlannedFailure{Attempts: []int{1}, Problem: job.PlannedProblem{RetryAfter: 5}}, job.PlannedFailure{Attempts: []int{2}})
	d := job.DefineCustom(job.Execute, &b, requestedAt, nil)
	j := job.Job{Attempt: 1, FinishedAt: &ended, Definition: &d, Failure: &job.Failure{Reason: job.CustomFailed}}
	require.Equal(t, 3*time.Second, j.RetryWait(ended.Add(2*time.Second), backoff, 0.5), "the rest of the planned wait")
	require.Zero(t, j.RetryWait(ended.Add(time.Minute), backoff, 0.5))
	j.Failure.Reason = job.WorkerLost
	require.Equal(t, 4*time.Second, j.RetryWait(ended, backoff, 0.5), "a failure that was not planned")
	j.Failure.Reason, j.Attempt = job.CustomFailed, 2
	require.Equal(t, 8*time.Second, j.RetryWait(ended, backoff, 0.5), "no wait was planned")
}

func TestDocumentOfAPlannedFailure(t *testing.T) {
	t.Parallel()
	links := job.Links{PublicURL: "https://x.test"}
	failure := &job.Failure{Reason: job.CustomFailed, Code: job.CodeDependencyTimeout, Retryable: true, RetryAfter: 2,
		Stage: job.StageStorage, Detail: "d"}
	origin := job.Origin{CreatedAt: requestedAt, Failures: []job.PlannedFailure{{Attempts: []int{2}, Problem: job.PlannedProblem{
		Type: "urn:x", Title: "<T>", Status: 409, Detail: "d", Extensions: json.RawMessage(`{"item":17,"a":{"b":"<>"}}`)}}}}
	attempt := job.Attempt{Number: 2, State: job.Failed, FinishedAt: &requestedAt, Failure: failure}
	media, body, err := links.Document(origin, attempt).Encode()
	require.NoError(t, err)
	require.Equal(t, "application/problem+json", media)
	require.Contains(t, string(body), `{"type":"urn:x","title":"<T>","status":409,"detail":"d",`)
	require.Contains(t, string(body), `,"item":17,"a":{"b":"<>"}}`)
	require.True(t, json.Valid(body))

	attempt.Number = 1
	d := links.Document(origin, attempt)
	require.Equal(t, "https://x.test/problems/custom-failure", d.Type)
	require.Equal(t, job.CustomFailed.Spec().Title, d.Title)
	attempt.Number, failure.Reason = 2, job.WorkerLost
	require.Equal(t, "https://x.test/problems/worker-lost", links.Document(origin, attempt).Type, "a failure that was not planned")
}
