package maintenance

import (
	"context"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

const testStream = "outcomes"

type world struct {
	*apptest.World
	url   string
	store *repo.Store
	queue *fakeQueue
	m     *Maintenance
}

func newWorld(t *testing.T, change ...func(*Deps)) *world {
	t.Parallel()
	w := &world{World: apptest.NewWorld(t), url: repotest.URL(t)}
	w.queue = &fakeQueue{Queue: w.World.Queue}
	w.store = repotest.OpenURL(t, w.url, func(c *repo.Config) { c.OutcomeStream = true })
	d := Deps{
		Store: w.store, Queue: w.queue, Tasks: w.queue, Completer: batches.NewCompleter(w.store, w.queue, w.Metrics, w.Logger),
		Backoff: apptest.Backoff, Clock: clock.New(), OutcomeStream: testStream, PublicURL: "https://run.example",
		Metrics: w.Metrics, Tracer: w.Tracer(), Log: w.Logger,
	}
	for _, f := range change {
		f(&d)
	}
	w.m = New(d)
	return w
}

func always() bool { return true }

func times(n int) func() bool { return func() bool { n--; return n >= 0 } }

func (w *world) round(name string) error { return w.roundWhile(name, always) }

func (w *world) roundWhile(name string, leading func() bool) error {
	tasks := w.m.leader.tasks
	i := slices.IndexFunc(tasks, func(t *task) bool { return t.name == name })
	return tasks[i].run(context.Background(), leading)
}

func (w *world) insert(table string, n int, given repotest.Columns) {
	repotest.Insert(w.T, w.url, table, n, given)
}

func (w *world) exec(sql string, args ...any) { repotest.Exec(w.T, w.url, sql, args...) }

func (w *world) count(what string) int { return repotest.Count(w.T, w.url, what) }

func (w *world) repaired(by string) int { return int(w.Metric(w.Metrics.Repaired.WithLabelValues(by))) }

func quoted(id job.ID) string { return `'` + id.String() + `'` }

type fakeQueue struct {
	*apptest.Queue
	stream      []job.StreamEntry
	added       int
	appendsLost bool
	emptied     bool
}

func (q *fakeQueue) Mend(context.Context) (err error) {
	q.Change(func() { err = q.Err })
	return err
}

func (q *fakeQueue) LastOutcome(context.Context, string) (last string, err error) {
	q.Change(func() { last, err = q.last(), q.Err })
	return last, err
}

func (q *fakeQueue) last() string {
	if len(q.stream) == 0 {
		return ""
	}
	return strconv.Itoa(q.added)
}

func (q *fakeQueue) AppendOutcomes(_ context.Context, _ string, _ int64, entries []job.StreamEntry) (before, last string, err error) {
	q.Change(func() {
		if q.emptied {
			q.stream, q.emptied = nil, false
		}
		if before, err = q.last(), q.Err; err != nil {
			return
		}
		q.stream, q.added = append(q.stream, entries...), q.added+len(entries)
		if last = q.last(); q.appendsLost {
			err = apptest.ErrQueue
		}
	})
	return before, last, err
}

func (q *fakeQueue) fail(err error) { q.Change(func() { q.Err = err }) }
