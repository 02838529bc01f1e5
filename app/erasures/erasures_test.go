package erasures_test

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/erasures"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

type world struct {
	t       *testing.T
	url     string
	store   *repo.Store
	jobs    *jobs.Service
	queue   *apptest.Queue
	runner  *erasures.Runner
	erasing *erasures.Service
}

func newWorld(t *testing.T) *world {
	t.Parallel()
	url, log := repotest.URL(t), slog.New(slog.DiscardHandler)
	store := repotest.OpenURL(t, url)
	queue, metrics := apptest.NewQueue(), app.NewMetrics(prometheus.NewRegistry())
	catalogue := job.Catalogue{Types: job.Types, Kinds: job.Kinds(), MaxRuntime: time.Minute}
	w := &world{t: t, url: url, store: store, queue: apptest.NewQueue(), erasing: erasures.New(store, log)}
	w.jobs = jobs.New(jobs.Config{Catalogue: catalogue, MaxAttempts: 4}, jobs.Deps{
		Store: store, Queue: queue, Completer: batches.NewCompleter(store, queue, metrics, log), Metrics: metrics, Log: log,
	})
	w.runner = erasures.NewRunner(store, w.jobs, w.queue, log)
	return w
}

// client creates a client with a waiting job.
func (w *world) client() (client, waiting job.ID) {
	w.t.Helper()
	client = app.NewID()
	apptest.Must(w.store.InsertClient(w.t.Context(), client))(w.t)
	receipt := apptest.Must(w.jobs.Submit(w.t.Context(), job.Request{
		ClientID: client, RequestID: "r", ReceivedAt: time.Now(), Type: job.Execute, WorkKind: job.SuccessFast,
	}))(w.t)
	return client, receipt.JobID
}

func (w *world) erase(client job.ID) *job.Erasure {
	w.t.Helper()
	return apptest.Must(w.erasing.Begin(w.t.Context(), job.ErasureRequest{ClientID: client, Operator: "ann"}))(w.t)
}

func (w *world) state(e *job.Erasure) job.ErasureState {
	w.t.Helper()
	return apptest.Must(w.erasing.Erasure(w.t.Context(), e.ID))(w.t).State()
}

// rounds runs rounds until an erasure is done. An erasure waits for all transactions on the server, including those of other tests.
func (w *world) rounds(e *job.Erasure) {
	w.t.Helper()
	testkit.Eventually(w.t, "the client is erased", func() bool {
		_ = w.runner.Round(w.t.Context(), always)
		return w.state(e) == job.ErasureDone
	})
}

func always() bool { return true }

func TestRunnerErasesAClient(t *testing.T) {
	w := newWorld(t)
	client, waiting := w.client()
	e := w.erase(client)
	require.NoError(t, w.runner.Round(t.Context(), func() bool { return false }))
	require.Nil(t, apptest.Must(w.erasing.Erasure(t.Context(), e.ID))(t).StartedAt, "only the leader works")
	w.rounds(e)
	require.Contains(t, w.queue.Removed, waiting, "its task is removed from the queue")
	_, err := w.store.Job(t.Context(), client, waiting)
	require.Error(t, err)
}

// An erasure that cannot cancel a job does not delay the others, and is retried.
func TestFailingErasureDoesNotDelayOthers(t *testing.T) {
	w := newWorld(t)
	client, waiting := w.client()
	failing := w.erase(client)
	accept := repotest.Refuse(t, w.url, "UPDATE ON jobs FOR EACH ROW WHEN (NEW.job_id = '"+waiting.String()+"')")
	testkit.Eventually(t, "the job cannot be canceled", func() bool { return w.runner.Round(t.Context(), always) != nil })
	client, _ = w.client()
	later := w.erase(client)
	testkit.Eventually(t, "the other client is erased", func() bool {
		require.Error(t, w.runner.Round(t.Context(), always))
		return w.state(later) == job.ErasureDone
	})
	require.NotEqual(t, job.ErasureDone, w.state(failing))
	accept()
	w.rounds(failing)
}

// The leadership may be lost between two parts of an erasure.
func TestRunnerStopsWithTheLead(t *testing.T) {
	w := newWorld(t)
	client, _ := w.client()
	w.erase(client)
	repotest.Exec(t, w.url, `UPDATE erasures SET step = 'batches'`)
	asked := 0
	require.NoError(t, w.runner.Round(t.Context(), func() bool { asked++; return asked <= 3 }))
	require.Equal(t, []string{"bulk_items"}, repotest.All[string](t, w.url, `SELECT step FROM erasures`), "the round ends after two parts")
}
