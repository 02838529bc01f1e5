package app

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// Idempotency executes a request with an idempotency key only once. Submissions of jobs and batches do not use it.
type Idempotency struct {
	Store *repo.Store
	Hits  prometheus.Counter
}

// Once calls `do` and stores the key with the answer. One transaction commits the key, the answer and the writes of `do`. After the commit,
// Once runs the functions passed to AfterCommit. If the key is stored already, Once does not call `do`, and returns the stored answer.
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

// Within calls `do`, which commits its own writes. Then Within runs the functions passed to AfterCommit. If `do` returns an error, these
// functions do not run: the writes failed, or the result of the commit is unknown.
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

// afterCommit is not safe for concurrent use.
type afterCommit []func()

type afterCommitKey struct{}

// AfterCommit runs f now, or after the commit if ctx belongs to Once or Within. Notifications and counts must not precede the commit. f
// does not run if the commit fails or its result is unknown. If a commit with an unknown result did succeed, the relay enqueues the tasks.
func AfterCommit(ctx context.Context, f func()) {
	if rest, ok := ctx.Value(afterCommitKey{}).(*afterCommit); ok {
		*rest = append(*rest, f)
		return
	}
	f()
}

// WithinOnce reports whether ctx belongs to a call of Once or Within.
func WithinOnce(ctx context.Context) bool { return ctx.Value(afterCommitKey{}) != nil }
