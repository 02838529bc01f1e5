package job_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

var usual = job.Backoff{Base: time.Second, Max: time.Minute}

// asked is a job whose request has a policy.
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
		want   []time.Duration // after the attempts from 1 on, with a jitter of a half
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
	require.Equal(t, time.Second, asked(listed).Backoff(usual).Ceiling(0), "there is no attempt 0; it waits as the first does")
	require.Equal(t, 60, asked(listed).Backoff(usual).RetryAfter(2))
	require.Equal(t, usual, (&job.Job{}).Backoff(usual), "a definition that is damaged")
}

func TestRetryPolicyOfAttempts(t *testing.T) {
	t.Parallel()
	require.Equal(t, 4, asked(nil).MaxAttempts)
	require.Equal(t, 4, asked(&job.RetryPolicy{}).MaxAttempts)
	require.Equal(t, 1, asked(&job.RetryPolicy{MaxAttempts: 1}).MaxAttempts)

	fail := func(p *job.RetryPolicy, auto bool) job.Finish {
		return job.Held{Lease: job.Lease{Attempt: 1}, MaxAttempts: 4, AutoRetry: auto, Retry: p}.Fail(job.WorkerLost, usual, 0.5)
	}
	code := job.NewFailure(job.WorkerLost, 1, usual).Code
	constant := &job.RetryPolicy{Strategy: job.Constant, Delays: []time.Duration{7 * time.Second}, Codes: []job.Code{code}}
	f := fail(constant, true)
	require.Equal(t, 7*time.Second, *f.RetryWait)
	require.Equal(t, 7, f.Failure.RetryAfter, "what the failure advises is what is waited")
	require.Nil(t, fail(constant, false).RetryWait, "it is not asked to retry by itself")
	others := fail(&job.RetryPolicy{Codes: []job.Code{job.CodeTimeout}}, true)
	require.Nil(t, others.RetryWait, "another code")
	require.True(t, others.Failure.Retryable, "the client may")
	require.False(t, others.Exhausted)
}

// Who stores the policy reads it back, and a job without one is stored as before.
func TestRetryPolicyIsStored(t *testing.T) {
	t.Parallel()
	p := &job.RetryPolicy{
		MaxAttempts: 3, Strategy: job.Listed, Delays: []time.Duration{1500 * time.Millisecond}, Codes: []job.Code{job.CodeTimeout},
	}
	stored, err := json.Marshal(asked(p).Definition)
	require.NoError(t, err)
	var d job.Definition
	require.NoError(t, json.Unmarshal(stored, &d))
	require.Equal(t, p, d.Retry)
	without, err := json.Marshal(asked(nil).Definition)
	require.NoError(t, err)
	require.NotContains(t, string(without), "retry")
}
