package apptest

import (
	"context"
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// Default values for tests.
const (
	LeaseTime = 30 * time.Second
	Heartbeat = 5 * time.Second
	Limit     = 120 * time.Second
)

// Clients and delays for tests.
var (
	ClientA = job.ID{0xa}
	ClientB = job.ID{0xb}
	Backoff = job.Backoff{Base: time.Second, Max: time.Minute}
)

// RunnerFunc is a Runner that reports no progress.
type RunnerFunc func(ctx context.Context, d job.Definition, attempt int) (*job.Result, error)

// Run runs the work.
func (f RunnerFunc) Run(ctx context.Context, d job.Definition, attempt int, _ job.Observer) (*job.Result, error) {
	return f(ctx, d, attempt)
}

// Probe always succeeds.
func (RunnerFunc) Probe(context.Context, job.Kind) error { return nil }

// Fixed returns work that ends immediately with the given result.
func Fixed(result *job.Result, err error) RunnerFunc {
	return func(context.Context, job.Definition, int) (*job.Result, error) { return result, err }
}

// Takes returns work that succeeds after d, unless its context ends first.
func Takes(d time.Duration) RunnerFunc {
	return func(ctx context.Context, definition job.Definition, _ int) (*job.Result, error) {
		if !app.Sleep(ctx, d) {
			return nil, context.Cause(ctx)
		}
		return GoodResult(definition), nil
	}
}

// DefinitionOf returns the definition of a kind.
func DefinitionOf(k job.Kind) *job.Definition {
	d, err := job.Catalogue{Kinds: job.Kinds(), MaxRuntime: Limit}.Define(job.Execute, k, time.Unix(1, 0), nil)
	if err != nil {
		panic(err)
	}
	return &d
}

// GoodResult returns a result that matches the definition.
func GoodResult(d job.Definition) *job.Result {
	body := make([]byte, d.PayloadSize)
	return &job.Result{MediaType: "application/octet-stream", Body: body, SHA256: sha256.Sum256(body)}
}

// Failure is the error of an attempt that fails as defined.
type Failure struct{ Reason job.Reason }

func (f Failure) Error() string { return string(f.Reason) }

// FailureReason returns why the attempt fails.
func (f Failure) FailureReason() job.Reason { return f.Reason }

// NoLocals refuses URLs with the word "local".
func NoLocals(url string) string {
	if strings.Contains(url, "local") {
		return "The host is a local one."
	}
	return ""
}

// Percent returns progress without a phase.
func Percent(n int) *job.Progress { return &job.Progress{Percentage: n} }

// Event returns the notification of an event of a job.
func Event(t job.Task) job.Notification { return job.Notification{ClientID: ClientA, JobID: t.JobID} }

// End returns the notification of the end of an attempt.
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
