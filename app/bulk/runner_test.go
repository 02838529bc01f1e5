package bulk

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

var errRollback = errors.New("roll back")

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

func TestOwnersAlternate(t *testing.T) {
	t.Parallel()
	var open []*job.Bulk
	for _, owner := range []string{"a", "a", "a", "a", "b", "b", "b", "c"} {
		open = append(open, &job.Bulk{ID: app.NewID(), Owner: job.BulkOwner{Operator: owner}, Rate: 1000})
	}
	var all turns
	now := time.Unix(1, 0)
	for range 3 {
		all.begin(open, now)
		var owners []string
		for range 6 {
			b := open[all.next(open)]
			all.take(b)
			owners = append(owners, b.Owner.Operator)
		}
		require.ElementsMatch(t, []string{"a", "b", "c"}, owners[:3])
		require.ElementsMatch(t, []string{"a", "b", "c"}, owners[3:])

		now = now.Add(time.Minute)
		all.begin(open, now)
		parts := 0
		for ; all.allowed(open[all.next(open)]) >= itemsAtOnce; parts++ {
			b := open[all.next(open)]
			all.take(b)
			all.spend(b, itemsAtOnce)
		}
		require.Equal(t, maxRate/itemsAtOnce, parts)
	}
}

func TestLockedJobDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	url, log, queue, metrics := repotest.URL(t), slog.New(slog.DiscardHandler), apptest.NewQueue(), app.NewMetrics(prometheus.NewRegistry())
	clients := repotest.OpenURL(t, url)
	leaders := repotest.OpenURL(t, url, func(c *repo.Config) { c.Timeout = 200 * time.Millisecond })
	service := jobs.New(jobs.Config{Catalogue: job.Catalogue{Types: job.Types, Kinds: job.Kinds(), MaxRuntime: time.Minute}, MaxAttempts: 4,
		Clock: time.Now},
		jobs.Deps{Store: leaders, Queue: queue, Completer: batches.NewCompleter(leaders, queue, metrics, log), Metrics: metrics, Log: log})
	operations, runner := New(leaders, log), NewRunner(leaders, service, metrics, log)
	var ids []job.ID
	for range 5 {
		ids = append(ids, apptest.Must(service.Submit(t.Context(), job.Request{
			ClientID: apptest.ClientA, RequestID: "r", ReceivedAt: time.Now(), Type: job.Execute, WorkKind: job.SuccessFast,
		}))(t).JobID)
	}
	begin := func(client job.ID) *job.Bulk {
		r := job.BulkRequest{Owner: job.BulkOwner{ClientID: client}, Action: job.BulkCancel, Rate: job.MaxBulkRate}
		return apptest.Must(operations.Begin(t.Context(), r))(t)
	}
	failing, b := begin(apptest.ClientB), begin(apptest.ClientA)
	repotest.Refuse(t, url, "UPDATE ON bulk_operations FOR EACH ROW WHEN (NEW.bulk_id = '"+failing.ID.String()+"')")
	round := func() error { return runner.Round(t.Context(), func() bool { return true }) }
	read := func(b *job.Bulk) *job.Bulk {
		return apptest.Must(operations.Bulk(t.Context(), job.ID{}, b.ID))(t)
	}
	states := func() (canceled int) {
		for _, id := range ids {
			if apptest.Must(clients.Job(t.Context(), apptest.ClientA, id))(t).State == job.Canceled {
				canceled++
			}
		}
		return canceled
	}

	require.Error(t, round())
	require.Nil(t, read(failing).GatheredAt)
	require.NotNil(t, read(b).GatheredAt, "a failing operation does not block the next one")

	held, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		key := job.RequestKey{ClientID: apptest.ClientA, Key: "k"}
		_, _, _ = clients.Once(t.Context(), key, func(ctx context.Context) (job.Answer, error) {
			_, _, err := clients.Cancel(ctx, apptest.ClientA, ids[2])
			close(held)
			<-release
			return job.Answer{}, errors.Join(errRollback, err)
		})
	}()
	<-held
	testkit.Eventually(t, "the others are canceled", func() bool { _ = round(); return states() == 4 })
	close(release)
	<-done
	testkit.Eventually(t, "the operation is done", func() bool {
		_ = round()
		return read(b).FinishedAt != nil
	})
	require.Equal(t, 5, states())
	require.Equal(t, 5.0, testutil.ToFloat64(metrics.BulkItems.WithLabelValues(string(job.BulkCancel), string(job.ItemSucceeded))))
}
