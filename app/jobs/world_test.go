package jobs

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

type world struct {
	*apptest.World
	*Service
	url    string
	store  *repo.Store // separate store, for reads by the test
	worker job.ID
	pauses job.Pauses
	full   bool
}

func newWorld(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	t.Parallel()
	w := &world{World: apptest.NewWorld(t), url: repotest.URL(t), worker: app.NewID()}
	w.store = repotest.OpenURL(t, w.url)
	w.Service = w.service(10, change...)
	leases := w.store.NewLeases()
	defer leases.Close()
	require.NoError(t, leases.Register(t.Context(), w.worker, "w", 1, time.Hour))
	return w
}

func (w *world) service(limit int, change ...func(*Config)) *Service {
	cfg := Config{Catalogue: testCatalogue, MaxAttempts: 4, Backoff: apptest.Backoff, Clock: time.Now}
	for _, f := range change {
		f(&cfg)
	}
	store := repotest.OpenURL(w.T, w.url)
	return New(cfg, Deps{
		Store: store, Queue: w.Queue, Targets: apptest.NoLocals, Receivers: func(job.ID) int { return 0 }, Progress: w.Queue.Progress,
		Completer: batches.NewCompleter(store, w.Queue, w.World.Metrics, w.Logger), Metrics: w.World.Metrics, Log: w.Logger,
		Admission: &Admission{
			Pauses: func() job.Pauses { return w.pauses }, Capacity: NewCapacity(oneClient(limit, limit), store, w.Logger), Storage: w.daily,
		},
	})
}

func (w *world) daily(context.Context, job.ID, int) job.Allowance {
	return job.Allowance{OK: !w.full, Limit: 100, RetryAfter: time.Hour}
}

func oneClient(active, queued int) Limits {
	return Limits{Active: active, Queued: queued, ClientActive: active, ClientQueued: queued}
}

func shared(all, share int) Limits {
	return Limits{Active: all, Queued: all, ClientActive: share, ClientQueued: share, ClientRate: 6000}
}

func (w *world) limit(s *Service, l Limits) {
	require.NoError(w.T, s.Admission.Capacity.close(w.T.Context()))
	s.Admission.Capacity = NewCapacity(l, s.Store, w.Logger)
}

func (w *world) submit(s *Service, change ...func(*job.Request)) job.Receipt {
	w.T.Helper()
	receipt := apptest.Must(s.Submit(w.T.Context(), newRequest(change...)))(w.T)
	w.enqueued(receipt.JobID)
	return receipt
}

// The task may be enqueued after the response, so the test waits.
func (w *world) enqueued(id job.ID) {
	w.T.Helper()
	testkit.Eventually(w.T, "the job has a task", func() bool {
		return slices.ContainsFunc(w.Queue.Sent(), func(t job.Task) bool { return t.JobID == id })
	})
}

func (w *world) refused(s *Service, change ...func(*job.Request)) *job.Error {
	w.T.Helper()
	_, err := s.Submit(w.T.Context(), newRequest(change...))
	var refusal *job.Error
	require.ErrorAs(w.T, err, &refusal)
	return refusal
}

func (w *world) stored(id job.ID) *job.Job {
	w.T.Helper()
	return apptest.Must(w.store.Job(w.T.Context(), apptest.ClientA, id))(w.T)
}

func (w *world) active() int {
	w.T.Helper()
	return apptest.Must(w.store.Load(w.T.Context(), 1_000_000))(w.T).Jobs.Active
}

func (w *world) nothingDone() {
	w.T.Helper()
	require.Zero(w.T, w.active())
	require.Empty(w.T, w.Queue.Sent())
	require.Empty(w.T, w.Queue.Notifications())
	require.Zero(w.T, w.Sum("jobs_submitted_total")+w.Sum("jobs_queued_total"))
	require.Empty(w.T, w.Log.Lines(w.T, map[string]any{"msg": "job transition"}))
}

func (w *world) run(id job.ID, attempt int) job.ClaimID {
	w.T.Helper()
	c, _, err := w.store.Claim(w.T.Context(), w.worker, id, attempt)
	require.NoError(w.T, err)
	require.NotNil(w.T, c)
	apptest.Must(w.store.Start(w.T.Context(), c.ClaimID))(w.T)
	return c.ClaimID
}

func (w *world) fail(id job.ID, attempt int, reason job.Reason) {
	w.T.Helper()
	c := w.run(id, attempt)
	apptest.Must(w.store.Finish(w.T.Context(), job.Finish{
		ClaimID: c, State: job.Failed, Failure: job.NewFailure(reason, attempt, apptest.Backoff),
	}))(w.T)
}

func (w *world) failed(s *Service, change ...func(*job.Request)) job.ID {
	w.T.Helper()
	id := w.submit(s, change...).JobID
	w.fail(id, 1, job.DependencyFailed)
	return id
}

var testCatalogue = job.Catalogue{Types: job.Types, Kinds: job.Kinds(), FailProbability: 0.2, MaxRuntime: apptest.Limit}

func newRequest(change ...func(*job.Request)) job.Request {
	r := job.Request{
		ClientID: apptest.ClientA, RequestID: "request-1", ReceivedAt: time.Now(), Type: job.Execute, WorkKind: job.SuccessFast,
		Language: "en", Hash: [32]byte{1},
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func newRequests(n int) []job.Request {
	items := make([]job.Request, n)
	for i := range items {
		items[i] = newRequest()
	}
	return items
}

func newBatchRequest(items ...job.Request) job.BatchRequest {
	r := job.BatchRequest{ClientID: apptest.ClientA, RequestID: "request-1", ReceivedAt: time.Now(), Hash: [32]byte{1}, Language: "de"}
	for i, item := range items {
		r.Items = append(r.Items, job.ItemRequest{ItemID: fmt.Sprint("item-", i), Request: item})
	}
	return r
}

func deferred(d time.Duration) func(*job.Request) {
	return func(r *job.Request) {
		at := time.Now().Add(d).UTC().Truncate(time.Microsecond)
		r.Type, r.ExecutionAt = job.Deferred, &at
	}
}

func withKey(key string) func(*job.Request)   { return func(r *job.Request) { r.IdempotencyKey = key } }
func calling(url string) func(*job.Request)   { return func(r *job.Request) { r.Callback = url } }
func ofKind(kind job.Kind) func(*job.Request) { return func(r *job.Request) { r.WorkKind = kind } }
func of(client job.ID) func(*job.Request)     { return func(r *job.Request) { r.ClientID = client } }

func flawed(pointer string, malformed bool) func(*job.Request) {
	return func(r *job.Request) {
		r.Malformed, r.Violations = malformed, []job.Violation{{Pointer: pointer, Detail: "Not as it should be."}}
	}
}

func pointers(violations []job.Violation) (list []string) {
	for _, v := range violations {
		list = append(list, v.Pointer)
	}
	return list
}

func second[T any](_ T, err error) error { return err }
