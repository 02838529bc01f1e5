package app

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// Idempotency executes a request with an idempotency key only once. Submissions of jobs and batches have a faster implementation.
type Idempotency struct {
	Store *repo.Store
	Hits  prometheus.Counter
}

// Once calls `do`. It commits the writes of `do`, the key and the answer in one transaction. Then it runs the functions passed to
// AfterCommit. For a known key, Once does not call `do` and returns the stored response.
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

// Within calls `do`, which commits its own writes. Then Within runs the functions passed to AfterCommit. An error means that nothing was
// written, or that the result of the commit is unknown.
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

// Only the request's goroutine adds to afterCommit.
type afterCommit []func()

type afterCommitKey struct{}

// AfterCommit runs f when the writes of the use case are committed: now, or after the commit of Once. Notifications and counts must not
// precede the commit. f does not run if the commit fails or its result is unknown. If a commit with an unknown result did succeed, the
// relay and the readers find its writes.
func AfterCommit(ctx context.Context, f func()) {
	if rest, ok := ctx.Value(afterCommitKey{}).(*afterCommit); ok {
		*rest = append(*rest, f)
		return
	}
	f()
}

// WithinOnce reports whether ctx belongs to a call of Once or Within.
func WithinOnce(ctx context.Context) bool { return ctx.Value(afterCommitKey{}) != nil }
