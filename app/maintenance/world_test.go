package maintenance

import (
	"context"
	"testing"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/delivery"
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
	w.Store, w.Queue = &fakeStore{Store: w.World.Store, epoch: 1}, newFakeQueue(w.World.Queue)
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
