package job_test

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func pointers(violations []job.Violation) []string {
	var list []string
	for _, v := range violations {
		list = append(list, v.Pointer)
	}
	return list
}

// Promise: contract 6d
// Promise: contract 10
func TestCheck(t *testing.T) {
	t.Parallel()
	at := &requestedAt
	some := job.Catalogue{Types: []job.Type{job.Execute, job.EmitEvent}, Kinds: []job.Kind{job.SuccessFast, job.PayloadInvalid}}
	found := job.Violation{Pointer: "/callback", Detail: "found while decoding"}
	badTime := job.Violation{Pointer: "/execution_at", Detail: "found while decoding"}
	for name, c := range map[string]struct {
		catalogue job.Catalogue
		request   job.Request
		want      []string
	}{
		"plain":                     {fullCatalogue(), job.Request{Type: job.Execute}, nil},
		"plain, kind named":         {fullCatalogue(), job.Request{Type: job.Execute, WorkKind: job.RetryOnFail}, nil},
		"deferred":                  {fullCatalogue(), job.Request{Type: job.Deferred, ExecutionAt: at}, nil},
		"event":                     {fullCatalogue(), job.Request{Type: job.EmitEvent, Emit: &job.Emission{Name: "x"}}, nil},
		"event without emission":    {fullCatalogue(), job.Request{Type: job.EmitEvent}, nil},
		"kind in a small catalogue": {some, job.Request{Type: job.Execute, WorkKind: job.SuccessFast}, nil},
		"type and kind not allowed": {some, job.Request{Type: job.Deferred, ExecutionAt: at, WorkKind: job.CPUBurst},
			[]string{"/type", "/work_kind"}},
		"type not allowed":        {some, job.Request{Type: job.Deferred, ExecutionAt: at}, []string{"/type"}},
		"kind not allowed":        {some, job.Request{Type: job.Execute, WorkKind: job.RunsLong}, []string{"/work_kind"}},
		"always refused":          {fullCatalogue(), job.Request{Type: job.Execute, WorkKind: job.PayloadInvalid}, []string{"/work_kind"}},
		"refused though allowed":  {some, job.Request{Type: job.Execute, WorkKind: job.PayloadInvalid}, []string{"/work_kind"}},
		"deferred without a time": {fullCatalogue(), job.Request{Type: job.Deferred}, []string{"/execution_at"}},
		"execute with a time":     {fullCatalogue(), job.Request{Type: job.Execute, ExecutionAt: at}, []string{"/execution_at"}},
		"event with a time":       {fullCatalogue(), job.Request{Type: job.EmitEvent, ExecutionAt: at}, []string{"/execution_at"}},
		"execute with an event":   {fullCatalogue(), job.Request{Type: job.Execute, Emit: &job.Emission{}}, []string{"/event"}},
		"deferred with an event":  {fullCatalogue(), job.Request{Type: job.Deferred, ExecutionAt: at, Emit: &job.Emission{}}, []string{"/event"}},
		"execution_at refused by decoding": {fullCatalogue(), job.Request{Type: job.Deferred, Violations: []job.Violation{badTime}},
			[]string{"/execution_at"}},
		"violations of decoding are kept": {fullCatalogue(), job.Request{Type: job.Deferred, Violations: []job.Violation{found}},
			[]string{"/callback", "/execution_at"}},
		"unknown type and kind": { // the decoder has reported these names already; Check adds nothing
			fullCatalogue(),
			job.Request{Type: "DANCE", WorkKind: "TANGO", ExecutionAt: at, Emit: &job.Emission{}, Violations: []job.Violation{found}},
			[]string{"/callback"},
		},
		"all violations": {
			some,
			job.Request{Type: job.Deferred, WorkKind: job.PayloadInvalid, Emit: &job.Emission{}},
			[]string{"/type", "/work_kind", "/execution_at", "/event"},
		},
	} {
		got := c.catalogue.Check(c.request)
		require.Equal(t, c.want, pointers(got), name)
		for _, v := range got {
			require.NotEmpty(t, v.Detail, name)
		}
		if name == "type and kind not allowed" {
			require.Contains(t, got[0].Detail, "EXECUTE, EMIT_EVENT", "the allowed types are listed")
			require.Contains(t, got[1].Detail, "SUCCESS_FAST, PAYLOAD_INVALID")
		}
	}
}

// Promise: contract 10
func TestTooLate(t *testing.T) {
	t.Parallel()
	now := requestedAt
	for offset, want := range map[time.Duration]bool{
		-time.Hour: true, -time.Second - time.Microsecond: true, -time.Second: false, 0: false, time.Hour: false,
	} {
		at := now.Add(offset)
		v, late := job.Request{Type: job.Deferred, ExecutionAt: &at}.TooLate(now)
		require.Equal(t, want, late, offset)
		if want {
			require.Equal(t, "/execution_at", v.Pointer)
			require.NotEmpty(t, v.Detail)
		} else {
			require.Zero(t, v)
		}
	}
	_, late := job.Request{Type: job.Execute}.TooLate(now)
	require.False(t, late)
	_, late = job.Request{Type: job.Execute, ExecutionAt: &time.Time{}}.TooLate(now)
	require.False(t, late, "Check refuses it")
	_, late = job.Request{ExecutionAt: &time.Time{}}.TooLate(now)
	require.True(t, late, "unknown type")
}

var usual = job.Backoff{Base: time.Second, Max: time.Minute}

func asked(p *job.RetryPolicy) *job.Job {
	j := &job.Job{Definition: &job.Definition{}, MaxAttempts: 4}
	j.WithRetry(p)
	return j
}

func TestRetryPolicyWaits(t *testing.T) {
	t.Parallel()
	listed := &job.RetryPolicy{Strategy: job.Listed, Delays: []time.Duration{time.Second, time.Minute}}
	for name, test := range map[string]struct {
		policy *job.RetryPolicy
		want   []time.Duration // expected waits after attempts 1, 2 and so on, for random = 0.5
	}{
		"none":     {nil, []time.Duration{time.Second / 2, time.Second, 2 * time.Second}},
		"attempts": {&job.RetryPolicy{MaxAttempts: 9}, []time.Duration{time.Second / 2, time.Second, 2 * time.Second}},
		"exponential": {&job.RetryPolicy{Strategy: job.Exponential, Delays: []time.Duration{4 * time.Second, 6 * time.Second}},
			[]time.Duration{2 * time.Second, 3 * time.Second, 3 * time.Second}},
		"constant": {&job.RetryPolicy{Strategy: job.Constant, Delays: []time.Duration{5 * time.Second}},
			[]time.Duration{5 * time.Second, 5 * time.Second}},
		"list": {listed, []time.Duration{time.Second, time.Minute, time.Minute, time.Minute}},
	} {
		b := asked(test.policy).Backoff(usual)
		for i, want := range test.want {
			require.Equal(t, want, b.Wait(i+1, 0.5), "%s, attempt %d", name, i+1)
		}
	}
	require.Equal(t, time.Second, asked(listed).Backoff(usual).Ceiling(0), "attempt 0 waits like attempt 1")
	require.Equal(t, 60, asked(listed).Backoff(usual).RetryAfter(2))
	require.Equal(t, usual, (&job.Job{}).Backoff(usual), "damaged definition")
}

func TestRetryPolicyOfAttempts(t *testing.T) {
	t.Parallel()
	require.Equal(t, 4, asked(nil).MaxAttempts)
	require.Equal(t, 4, asked(&job.RetryPolicy{}).MaxAttempts)
	require.Equal(t, 1, asked(&job.RetryPolicy{MaxAttempts: 1}).MaxAttempts)

	fail := func(p *job.RetryPolicy, auto bool) job.Finish {
		return job.Held{ClaimID: job.ClaimID{Attempt: 1}, MaxAttempts: 4, AutoRetry: auto, Retry: p}.Fail(job.WorkerLost, usual, 0.5)
	}
	code := job.NewFailure(job.WorkerLost, 1, usual).Code
	constant := &job.RetryPolicy{Strategy: job.Constant, Delays: []time.Duration{7 * time.Second}, Codes: []job.Code{code}}
	f := fail(constant, true)
	require.Equal(t, 7*time.Second, *f.RetryWait)
	require.Equal(t, 7, f.Failure.RetryAfter, "RetryAfter equals the wait")
	require.Nil(t, fail(constant, false).RetryWait, "auto_retry is off")
	others := fail(&job.RetryPolicy{Codes: []job.Code{job.CodeTimeout}}, true)
	require.Nil(t, others.RetryWait, "another code")
	require.True(t, others.Failure.Retryable, "the client can retry")
	require.False(t, others.Exhausted)
}

func TestBackoffOfExtremeValues(t *testing.T) {
	t.Parallel()
	const forever = time.Duration(math.MaxInt64)
	for _, attempt := range []int{1, 2, 63, 64, 65, 1000, math.MaxInt32, math.MaxInt} {
		for _, b := range []job.Backoff{
			{Base: time.Second, Max: time.Minute}, {Base: 1, Max: forever}, {Base: time.Second, Max: forever},
			{Base: forever, Max: forever}, {Base: 0, Max: time.Minute}, {Base: time.Second, Max: 0},
			{Base: -time.Second, Max: time.Minute}, {Base: time.Second, Max: -time.Second},
		} {
			c := b.Ceiling(attempt)
			require.GreaterOrEqual(t, c, time.Duration(0), "%+v, attempt %d", b, attempt)
			require.LessOrEqual(t, c, max(0, b.Max), "%+v, attempt %d", b, attempt)
			if attempt >= 64 && b.Base > 0 {
				require.Equal(t, max(0, b.Max), c, "%+v, attempt %d", b, attempt)
			}
			require.GreaterOrEqual(t, b.RetryAfter(attempt), 1)
			require.GreaterOrEqual(t, float64(b.RetryAfter(attempt)), c.Seconds())
			require.LessOrEqual(t, b.Wait(attempt, math.Nextafter(1, 0)), c)
		}
	}
}

func TestScheduledJobsKeepEachMember(t *testing.T) {
	t.Parallel()
	var s job.Schedule
	members := reflect.ValueOf(&s.Job).Elem()
	for i := range members.NumField() {
		switch f := members.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Slice:
			f.SetBytes([]byte("{}"))
		default:
			t.Fatalf("%s: say here how it is set", members.Type().Field(i).Name)
		}
	}
	require.Equal(t, s.Job, job.ScheduledJobOf(s.Request(time.Now())))
}
