package maintenance

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/delivery"
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
	w.Store, w.Queue = &fakeStore{Store: w.World.Store}, &fakeQueue{Queue: w.World.Queue}
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
	return New(Deps{
		Store: w.Store, Claims: w.Store, Backlog: w.Store, Clock: w.Clock, History: w.History, Bulk: noBulk{},
		Erasures: noBulk{}, Schedules: noBulk{}, Pauses: &asideStore{},
		Queue:      w.Queue,
		Relay:      NewRelay(w.Store, w.Queue, testWindow, w.Metrics, w.Logger),
		Deliveries: delivery.NewRelay(w.Store, w.Queue, w.Metrics, w.Logger),
		Publisher: NewPublisher(PublisherConfig{Stream: testStream, MaxLen: testStreamLen, PublicURL: "https://run.example"}, w.Store, w.Queue,
			w.Metrics, w.Logger),
		Completer: w.completer, Backoff: apptest.Backoff, Metrics: w.Metrics, Tracer: w.Tracer(), Log: w.Logger,
	})
}

// otherLeads has another process lead for an hour.
func (w *worldMaint) otherLeads() {
	w.Store.Update(func() { w.Store.Leader, w.Store.LeaderUntil = app.NewID(), time.Now().Add(time.Hour) })
}

// noBulk has no bulk operation, no erasure and no schedule to do.
type noBulk struct{}

func (noBulk) Due() <-chan struct{} { return nil }

func (noBulk) Round(context.Context, func() bool) error { return nil }

// fakeStore adds the outbox of outcomes, and a count of the backlog, to the
// shared store.
type fakeStore struct {
	*apptest.Store
	outbox    []*outboxRow
	backlog   job.Backlog
	cleanings int // how often Clean says that there is more
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
	_, err := apptest.Call(ctx, s.Store, "MarkPublished", func() (struct{}, error) {
		marked := map[job.ID]int{}
		for _, m := range messages {
			marked[m.JobID] = m.Attempt
		}
		for _, r := range s.outbox {
			if r.Published.IsZero() && marked[r.JobID] == r.Attempt {
				r.Published = time.Now()
			}
		}
		return struct{}{}, nil
	})
	return err
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
	_, err := apptest.Call(ctx, s.Store, "RemovePublished", func() (struct{}, error) {
		s.outbox = slices.DeleteFunc(s.outbox, func(r *outboxRow) bool {
			return !r.Published.IsZero() && time.Since(r.Published) >= minAge
		})
		return struct{}{}, nil
	})
	return err
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

func (s *fakeStore) FailOrphans(ctx context.Context, _, _ int) (int, error) {
	return apptest.Call(ctx, s.Store, "FailOrphans", func() (int, error) { return 0, nil })
}

func (s *fakeStore) DueClients(ctx context.Context, _ job.EndpointKey, _ time.Duration, _ int) ([]job.ID, job.EndpointKey, error) {
	_, err := apptest.Call(ctx, s.Store, "DueClients", func() (int, error) { return 0, nil })
	return nil, job.EndpointKey{}, err
}

func (s *fakeStore) WaitingDeliveries(ctx context.Context, _ job.EndpointKey, _, _, _ int, _ time.Duration) (
	[]job.Delivery, job.EndpointKey, error,
) {
	_, err := apptest.Call(ctx, s.Store, "WaitingDeliveries", func() (int, error) { return 0, nil })
	return nil, job.EndpointKey{}, err
}

const (
	testStream    = "outcomes"
	testStreamLen = 1000
)

// fakeQueue adds the stream of outcomes to the shared queue, and hooks.
type fakeQueue struct {
	*apptest.Queue
	offered     []job.Task // by Dispatch, in order
	stream      []job.StreamEntry
	appendsLost bool   // an error of AppendOutcomes comes after the entries are there
	onDispatch  func() // after the tasks are in the queue
	onSetEpoch  func() error
}

func (q *fakeQueue) Dispatch(ctx context.Context, tasks []job.Task) ([]job.Dispatched, error) {
	answers, err := q.Queue.Dispatch(ctx, tasks)
	if err != nil {
		return nil, err
	}
	var then func()
	q.Change(func() {
		q.offered = append(q.offered, tasks...)
		then = q.onDispatch
	})
	if then != nil {
		then()
	}
	return answers, nil
}

func (q *fakeQueue) SetEpoch(ctx context.Context, epoch int64) error {
	if q.onSetEpoch != nil {
		if err := q.onSetEpoch(); err != nil {
			return err
		}
	}
	return q.Queue.SetEpoch(ctx, epoch)
}

func (q *fakeQueue) AppendOutcomes(_ context.Context, stream string, maxLen int64, entries []job.StreamEntry) error {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if stream != testStream || maxLen != testStreamLen {
		return errors.New("another stream")
	}
	if q.Err == nil || q.appendsLost {
		q.stream = append(q.stream, entries...)
	}
	return q.Err
}

// set gives a task a state of its own.
func (q *fakeQueue) set(t job.Task, state string) {
	q.Change(func() { q.Tasks[apptest.TaskName(t)] = apptest.Queued{Task: t, State: state} })
}
