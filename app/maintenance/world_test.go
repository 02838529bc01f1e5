package maintenance

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/delivery"
	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
)

// worldMaint is everything around the maintenance.
type worldMaint struct {
	*apptest.World
	Store     *fakeStore
	Queue     *fakeQueue
	Clock     *fakeClock
	History   *fakeHistory
	completer *batches.Completer
}

func newWorldMaint(t testing.TB) *worldMaint {
	w := &worldMaint{World: apptest.NewWorld(t)}
	w.Clock = &fakeClock{store: w.World.Store}
	w.History = &fakeHistory{store: w.World.Store, written: map[time.Time]int{}}
	w.Store, w.Queue = &fakeStore{Store: w.World.Store}, newFakeQueue(w.World.Queue)
	w.completer = batches.NewCompleter(w.Store, w.Queue, w.Metrics, w.Logger)
	return w
}

// bubble runs a test in a world of its own.
func bubble(t *testing.T, f func(t *testing.T, w *worldMaint)) {
	t.Helper()
	apptest.Bubble(t, func(t *testing.T) { f(t, newWorldMaint(t)) })
}

// lead runs maintenance until the test ends.
func (w *worldMaint) lead() (m *Maintenance, stop func()) {
	m = w.maintenance()
	return m, w.Background(m.Run)
}

func (w *worldMaint) maintenance() *Maintenance {
	relay := NewRelay(w.Store, w.Queue, w.Metrics)
	relay.Clock = clock.New()
	return New(Deps{
		Store: w.Store, Claims: w.Store, Backlog: w.Store, Clock: w.Clock, History: w.History, Bulk: noBulk{},
		Erasures: noBulk{}, Schedules: noBulk{}, Pauses: &asideStore{},
		Queue:      w.Queue,
		Relay:      relay,
		Deliveries: delivery.NewRelay(w.Store, w.Queue, w.Metrics, w.Logger),
		Publisher: NewPublisher(PublisherConfig{Stream: testStream, PublicURL: "https://run.example"}, w.Store, w.Queue,
			w.Metrics, w.Logger),
		Completer: w.completer, Backoff: apptest.Backoff, Metrics: w.Metrics, Tracer: w.Tracer(), Log: w.Logger,
	})
}

// otherLeads has another process lead for an hour.
func (w *worldMaint) otherLeads() {
	w.Store.Update(func() { w.Store.leader, w.Store.leaderUntil = app.NewID(), time.Now().Add(time.Hour) })
}

// noBulk has no bulk operation, no erasure and no schedule to do.
type noBulk struct{}

func (noBulk) Due() <-chan struct{} { return nil }

func (noBulk) Round(context.Context, func() bool) error { return nil }

// fakeStore adds to the shared store what the leader alone asks for.
type fakeStore struct {
	*apptest.Store
	leader      job.ID
	leaderUntil time.Time
	outbox      []*outboxRow
	backlog     job.Backlog
	cleanings   int // how often Clean says that there is more
}

// outboxRow is an outcome that is or was to be published.
type outboxRow struct {
	job.OutcomeMessage
	Published time.Time // zero while it is not
}

func (s *fakeStore) UnpublishedOutcomes(ctx context.Context, limit int) ([]job.OutcomeMessage, error) {
	return apptest.Call(ctx, s.Store, "UnpublishedOutcomes", func() (messages []job.OutcomeMessage, err error) {
		for _, r := range s.outbox {
			if len(messages) < limit && r.Published.IsZero() {
				messages = append(messages, r.OutcomeMessage)
			}
		}
		return messages, nil
	})
}

func (s *fakeStore) MarkPublished(ctx context.Context, messages []job.OutcomeMessage) error {
	return apptest.Do(ctx, s.Store, "MarkPublished", func() error {
		marked := map[job.ID]int{}
		for _, m := range messages {
			marked[m.JobID] = m.Attempt
		}
		for _, r := range s.outbox {
			if r.Published.IsZero() && marked[r.JobID] == r.Attempt {
				r.Published = time.Now()
			}
		}
		return nil
	})
}

func (s *fakeStore) RepublishOutcomes(ctx context.Context) (int, error) {
	return apptest.Call(ctx, s.Store, "RepublishOutcomes", func() (n int, err error) {
		for _, r := range s.outbox {
			if !r.Published.IsZero() {
				n++
			}
			r.Published = time.Time{}
		}
		return n, nil
	})
}

func (s *fakeStore) RemovePublished(ctx context.Context, minAge time.Duration) error {
	return apptest.Do(ctx, s.Store, "RemovePublished", func() error {
		s.outbox = slices.DeleteFunc(s.outbox, func(r *outboxRow) bool {
			return !r.Published.IsZero() && time.Since(r.Published) >= minAge
		})
		return nil
	})
}

func (s *fakeStore) Backlog(ctx context.Context, limit int) (job.Backlog, error) {
	return apptest.Call(ctx, s.Store, "Backlog", func() (job.Backlog, error) {
		if limit != 1_000_000 {
			return job.Backlog{}, errors.New("another limit")
		}
		return s.backlog, nil
	})
}

func (s *fakeStore) Clean(ctx context.Context, _ int) (bool, error) {
	return apptest.Call(ctx, s.Store, "Clean", func() (bool, error) {
		s.cleanings--
		return s.cleanings >= 0, nil
	})
}

func (s *fakeStore) ReclaimDeliveries(ctx context.Context, _ int) (int, error) {
	return apptest.Call(ctx, s.Store, "ReclaimDeliveries", func() (int, error) { return 0, nil })
}

func (s *fakeStore) FailOrphans(ctx context.Context, _, _ int) ([]job.ID, error) {
	return apptest.Call(ctx, s.Store, "FailOrphans", func() ([]job.ID, error) { return nil, nil })
}

func (s *fakeStore) DueDeliveries(ctx context.Context, _ job.EndpointKey, _, _, _ int, _, _ time.Duration) (
	due []job.DeliveryTask, last job.EndpointKey, err error,
) {
	return nil, last, apptest.Do(ctx, s.Store, "DueDeliveries", func() error { return nil })
}

func (s *fakeStore) Lead(ctx context.Context, holder job.ID, lease, vacant time.Duration) (bool, error) {
	return apptest.Call(ctx, s.Store, "Lead", func() (bool, error) {
		if s.leader != holder && time.Now().Before(s.leaderUntil.Add(vacant)) {
			return false, nil
		}
		s.leader, s.leaderUntil = holder, time.Now().Add(lease)
		return true, nil
	})
}

func (s *fakeStore) Resign(ctx context.Context, holder job.ID) error {
	return apptest.Do(ctx, s.Store, "Resign", func() error {
		if s.leader == holder {
			s.leader, s.leaderUntil = job.ID{}, time.Time{}
		}
		return nil
	})
}

func (s *fakeStore) QueueDue(ctx context.Context, limit int) ([]job.Job, error) {
	return apptest.Call(ctx, s.Store, "QueueDue", func() (due []job.Job, err error) {
		for _, r := range s.Rows {
			if len(due) < limit && r.State == job.Created && !r.ExecutionAt.After(time.Now()) {
				s.Move(r, job.Queued)
				due = append(due, r.Job)
			}
		}
		return due, nil
	})
}

func (s *fakeStore) Waiting(ctx context.Context, after job.QueueCursor, age time.Duration, limit int) ([]job.Task, error) {
	return apptest.Call(ctx, s.Store, "Waiting", func() (tasks []job.Task, err error) {
		for _, r := range s.Rows {
			due, old := !r.RunAt.After(time.Now()), !r.CreatedAt.After(time.Now().Add(-age))
			if t := apptest.TaskOf(r); r.State.Waiting() && due && old && compare(t.Cursor(), after) > 0 {
				tasks = append(tasks, t)
			}
		}
		slices.SortFunc(tasks, func(a, b job.Task) int { return compare(a.Cursor(), b.Cursor()) })
		return tasks[:min(limit, len(tasks))], nil
	})
}

// compare orders jobs by their time, then by their id.
func compare(a, b job.QueueCursor) int {
	return cmp.Or(a.RunAt.Compare(b.RunAt), bytes.Compare(a.JobID[:], b.JobID[:]))
}
