package erasures_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/erasures"
	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

type world struct {
	*backend.Service
	queue  *apptest.Queue
	runner *erasures.Runner
}

func newWorld(t *testing.T) *world {
	t.Parallel()
	w := &world{Service: backend.New(t), queue: apptest.NewQueue()}
	w.runner = erasures.NewRunner(w.Store, w.Jobs, w.queue, w.Logger)
	return w
}

func (w *world) client() (client, waiting job.ID) {
	w.T.Helper()
	client = app.NewID()
	apptest.Must(w.Store.InsertClient(w.T.Context(), client))(w.T)
	receipt := apptest.Must(w.Jobs.Submit(w.T.Context(), job.Request{
		ClientID: client, RequestID: "r", ReceivedAt: time.Now(), Type: job.Execute, WorkKind: job.SuccessFast,
	}))(w.T)
	return client, receipt.JobID
}

func (w *world) erase(client job.ID) *job.Erasure {
	w.T.Helper()
	return apptest.Must(w.Erasures.Begin(w.T.Context(), job.ErasureRequest{ClientID: client, Operator: "ann"}))(w.T)
}

func (w *world) state(e *job.Erasure) job.ErasureState {
	w.T.Helper()
	return apptest.Must(w.Erasures.Erasure(w.T.Context(), e.ID))(w.T).State()
}

// Transactions of parallel tests delay an erasure, so several rounds may be needed.
func (w *world) rounds(e *job.Erasure) {
	w.T.Helper()
	testkit.Eventually(w.T, "the client is erased", func() bool {
		_ = w.runner.Round(w.T.Context(), always)
		return w.state(e) == job.ErasureDone
	})
}

func always() bool { return true }

func TestFailingErasureDoesNotDelayOthers(t *testing.T) {
	w := newWorld(t)
	client, waiting := w.client()
	failing := w.erase(client)
	accept := repotest.Refuse(t, w.URL(), "UPDATE ON jobs FOR EACH ROW WHEN (NEW.job_id = '"+waiting.String()+"')")
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

func TestRunnerStopsWithTheLead(t *testing.T) {
	w := newWorld(t)
	client, _ := w.client()
	w.erase(client)
	w.Exec(`UPDATE erasures SET step = 'batches'`)
	asked := 0
	require.NoError(t, w.runner.Round(t.Context(), func() bool { asked++; return asked <= 3 }))
	require.Equal(t, []string{"bulk_items"}, repotest.All[string](t, w.URL(), `SELECT step FROM erasures`), "the round ends after two parts")
}
