package apptest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// Limit is the execution limit of an attempt in tests.
const Limit = 120 * time.Second

// Sample values.
var (
	ClientA = job.ID{0xa}
	ClientB = job.ID{0xb}
	Backoff = job.Backoff{Base: time.Second, Max: time.Minute}
)

// DefinitionOf returns the definition of a kind.
func DefinitionOf(k job.Kind) *job.Definition {
	d, err := job.Catalogue{Kinds: job.Kinds(), MaxRuntime: Limit}.Define(job.Execute, k, time.Unix(1, 0), nil)
	if err != nil {
		panic(err)
	}
	return &d
}

// NoLocals refuses URLs with the word "local".
func NoLocals(url string) string {
	if strings.Contains(url, "local") {
		return "The host is a local one."
	}
	return ""
}

// Percent returns progress without a phase.
func Percent(n int) *job.Progress { return &job.Progress{Percentage: n} }

// Event returns a notification about a new event of a job.
func Event(t job.Task) job.Notification { return job.Notification{ClientID: ClientA, JobID: t.JobID} }

// End returns a notification about the end of an attempt.
func End(t job.Task) job.Notification {
	return job.Notification{ClientID: ClientA, JobID: t.JobID, Attempt: t.Attempt, Ended: true}
}

// Must returns the value of a call that must succeed: Must(f())(t).
func Must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}
