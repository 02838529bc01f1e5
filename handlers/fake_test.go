package handlers

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/site"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

const (
	goodKey  = "frk_good_key"
	otherKey = "frk_other_key"
	adminKey = "admin-token"
)

var (
	clientA    = mustID("00000000-0000-4000-8000-00000000000a")
	clientB    = mustID("00000000-0000-4000-8000-00000000000b")
	jobID      = mustID("01890000-0000-7000-8000-000000000001")
	nextID     = mustID("01890000-0000-7000-8000-00000000000e")
	batchID    = mustID("01890000-0000-7000-8000-0000000000ba")
	webhookID  = mustID("01890000-0000-7000-8000-0000000000c1")
	deliveryID = mustID("01890000-0000-7000-8000-0000000000d1")
	eventID    = mustID("01890000-0000-7000-8000-0000000000e1")
	bulkID     = mustID("01890000-0000-7000-8000-0000000000e2")
	scheduleID = mustID("01890000-0000-7000-8000-0000000000d2")
	now        = time.Date(2030, 1, 31, 12, 0, 0, 123456000, time.UTC)
)

func mustID(s string) job.ID {
	id, err := job.ParseID(s)
	if err != nil {
		panic(err)
	}
	return id
}

// lookups are the ids that fakes were asked for.
type lookups struct {
	strict bool // only client A has things, each under its own id; else they are anybody's

	mu    sync.Mutex
	asked []job.ID
}

// has notes that a client asked for what may be client A's under an id.
func (l *lookups) has(client, id, own job.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, id)
	return !l.strict || client == clientA && id == own
}

// finder gives a client's thing of an id.
type finder[T any] func(ctx context.Context, client, id job.ID) (T, error)

// of is what the finder gives where the client has the thing; a nil one has nothing.
func (f finder[T]) of(ctx context.Context, l *lookups, client, id, own job.ID, missing error) (T, error) {
	if l.has(client, id, own) && f != nil {
		return f(ctx, client, id)
	}
	var nothing T
	return nothing, missing
}

// fakeJobs answers with what its functions say, as Jobs and as Reader; nil ones
// say "not found", except for submit and list.
type fakeJobs struct {
	deliveries int // of each submission's events
	*lookups
	err      error // of submit and change, if set
	submit   func(context.Context, job.Request) (job.Receipt, error)
	change   finder[job.Change] // cancel and retry
	remove   finder[struct{}]
	job      finder[*job.Job]
	report   func(ctx context.Context, client, id job.ID, attempt int) (*job.Report, error)
	attempts func(ctx context.Context, client, id job.ID) (job.Origin, []job.Attempt, error)
	result   finder[*job.StoredResult]
	list     func(ctx context.Context, client job.ID, q job.Query) (job.Page, error)
	await    func(ctx context.Context, done func(*job.Job) bool) (*job.Job, error) // nil: reads job with each change
	changed  chan chan struct{}                                                    // by wake
}

var errNoJob = job.Errorf(job.CodeJobNotFound, "There is no such job.")

func (f *fakeJobs) Deliveries(*job.Request) int { return f.deliveries }

func (f *fakeJobs) Submit(ctx context.Context, r job.Request) (job.Receipt, error) {
	switch {
	case f.err != nil:
		return job.Receipt{}, f.err
	case f.submit != nil:
		return f.submit(ctx, r)
	case len(r.Violations) > 0:
		return job.Receipt{}, r.Refusal(r.Violations)
	}
	return job.Receipt{JobID: jobID, State: job.Queued, CreatedAt: now}, nil
}

func (f *fakeJobs) Cancel(ctx context.Context, client, id job.ID) (job.Change, error) {
	if f.err != nil {
		return job.Change{}, f.err
	}
	return f.change.of(ctx, f.lookups, client, id, jobID, errNoJob)
}

func (f *fakeJobs) Retry(ctx context.Context, client, id job.ID) (job.Change, error) {
	return f.Cancel(ctx, client, id)
}

func (f *fakeJobs) Delete(ctx context.Context, client, id job.ID) error {
	_, err := f.remove.of(ctx, f.lookups, client, id, jobID, errNoJob)
	return err
}

func (f *fakeJobs) CancelClient(_ context.Context, client job.ID) (int, bool, error) {
	return 3, client == clientA, nil
}

func (f *fakeJobs) Job(ctx context.Context, client, id job.ID) (*job.Job, error) {
	return f.job.of(ctx, f.lookups, client, id, jobID, errNoJob)
}

func (f *fakeJobs) Await(ctx context.Context, client, id job.ID, done func(*job.Job) bool) (*job.Job, error) {
	if f.await != nil {
		return f.await(ctx, done)
	}
	var looked chan struct{} // whom to tell that the job was read
	for {
		j, err := f.Job(ctx, client, id)
		ended := err != nil || done(j)
		if looked != nil {
			close(looked)
		}
		if ended {
			return j, err
		}
		select {
		case looked = <-f.changed:
		case <-ctx.Done():
			return j, nil
		}
	}
}

// wake makes whoever waits for a job read it again. It returns when that is
// done, or when nobody has waited for long.
func (f *fakeJobs) wake(t *testing.T) {
	t.Helper()
	looked := make(chan struct{})
	select {
	case f.changed <- looked:
		<-looked
	case <-time.After(testkit.Patience):
		require.FailNow(t, "nobody waits")
	}
}

func (f *fakeJobs) Report(ctx context.Context, client, id job.ID, attempt int) (*job.Report, error) {
	if !f.has(client, id, jobID) || f.report == nil {
		return nil, errNoJob
	}
	return f.report(ctx, client, id, attempt)
}

func (f *fakeJobs) Attempts(ctx context.Context, client, id job.ID) (job.Origin, []job.Attempt, error) {
	if !f.has(client, id, jobID) || f.attempts == nil {
		return job.Origin{}, nil, errNoJob
	}
	return f.attempts(ctx, client, id)
}

func (f *fakeJobs) Result(ctx context.Context, client, id job.ID) (*job.StoredResult, error) {
	return f.result.of(ctx, f.lookups, client, id, jobID, errNoJob)
}

func (f *fakeJobs) List(ctx context.Context, client job.ID, q job.Query) (job.Page, error) {
	if f.list == nil {
		return job.Page{}, nil
	}
	return f.list(ctx, client, q)
}

// fakeBatches answers with what its functions say, and keeps the last request.
type fakeBatches struct {
	*lookups
	submit func(context.Context, job.BatchRequest) (*job.Batch, bool, error) // nil: accepts all
	batch  finder[*job.Batch]                                                // read and cancel
	got    job.BatchRequest
}

func (f *fakeBatches) SubmitBatch(ctx context.Context, r job.BatchRequest) (*job.Batch, bool, error) {
	if f.got = r; f.submit == nil {
		return &job.Batch{ID: batchID, ClientID: r.ClientID, CreatedAt: now}, false, nil
	}
	return f.submit(ctx, r)
}

func (f *fakeBatches) Batch(ctx context.Context, client, id job.ID) (*job.Batch, error) {
	return f.batch.of(ctx, f.lookups, client, id, batchID, job.Errorf(job.CodeBatchNotFound, "There is no such batch."))
}

func (f *fakeBatches) CancelBatch(ctx context.Context, client, id job.ID) (*job.Batch, error) {
	return f.Batch(ctx, client, id)
}

// fakeEvents has those of a client, and the same ones of its jobs, which have more.
type fakeEvents struct {
	jobs *fakeJobs
	feed []job.Occurrence
}

func (f *fakeEvents) JobEvents(ctx context.Context, client, id job.ID, _, _ int) (job.Log, error) {
	_, err := f.jobs.Job(ctx, client, id)
	return job.Log{Events: f.feed, Last: 2 * len(f.feed)}, err
}

func (f *fakeEvents) ClientEvents(_ context.Context, _ job.ID, after job.Position, _ int) (job.Feed, error) {
	if n := len(f.feed); n > 0 && f.feed[n-1].Position == after {
		return job.Feed{}, nil
	}
	return job.Feed{Events: f.feed}, nil
}

func (*fakeEvents) FeedEnd(context.Context) (job.Position, error) { return job.Position{Tx: 1}, nil }

func (*fakeEvents) Watch(_, _ job.ID) (<-chan job.Notification, func()) { return nil, func() {} }

// fakeLimiter answers as it is set, and allows a batch so many items; 0: any number.
type fakeLimiter struct {
	answer   job.Allowance
	maxItems int
}

func (f fakeLimiter) Allow(context.Context, job.ID) job.Allowance { return f.answer }

func (f fakeLimiter) AllowItems(_ context.Context, _ job.ID, items int) job.Allowance {
	if f.maxItems > 0 && items > f.maxItems {
		return job.Allowance{Policy: "minute", Limit: f.maxItems, RetryAfter: 90 * time.Second}
	}
	return job.Allowance{OK: true}
}

type fakeHealth struct{ answer site.Readiness }

func (f fakeHealth) Ready(context.Context) site.Readiness { return f.answer }
