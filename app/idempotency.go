package app

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// Idempotency runs the requests of an idempotency key once. Submissions of jobs and batches have a quicker way of their own.
type Idempotency struct {
	Store *repo.Store
	Hits  prometheus.Counter
}

// Once calls do with a context in which a use case writes, and commits that together with the key and the answer. Then it runs
// what the use case left to AfterCommit. For a known key it returns the first answer instead, and does nothing.
func (i *Idempotency) Once(ctx context.Context, key job.RequestKey, do func(context.Context) (job.Answer, error)) (
	answer job.Answer, replayed bool, err error,
) {
	err = Within(ctx, func(ctx context.Context) error {
		answer, replayed, err = i.Store.Once(ctx, key, do)
		return err
	})
	if err != nil {
		return job.Answer{}, false, err
	}
	if replayed {
		i.Hits.Inc()
	}
	return answer, replayed, nil
}

// Within calls do, which commits what use cases write with the context that it is given,
// and then runs what they left to AfterCommit. An error means that nothing was written,
// or that it is not known.
func Within(ctx context.Context, do func(context.Context) error) error {
	var rest afterCommit
	if err := do(context.WithValue(ctx, afterCommitKey{}, &rest)); err != nil {
		return err
	}
	for _, f := range rest {
		f()
	}
	return nil
}

// afterCommit is what waits for the commit of Once or Within. It is filled by the one
// goroutine of the request.
type afterCommit []func()

type afterCommitKey struct{}

// AfterCommit runs f when what the use case has written is committed: now,
// unless that is done within Once. What others learn of a change, and what is
// counted, must not come before its commit. f is not run if there is none, or if
// its outcome is unknown: then the relay and the readers find what was written.
func AfterCommit(ctx context.Context, f func()) {
	if rest, ok := ctx.Value(afterCommitKey{}).(*afterCommit); ok {
		*rest = append(*rest, f)
		return
	}
	f()
}

// WithinOnce reports whether AfterCommit waits for a commit.
func WithinOnce(ctx context.Context) bool { return ctx.Value(afterCommitKey{}) != nil }
