package scale

import (
	"bytes"
	"context"
	"crypto/sha256"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

// seedTest is a database, a store on it and a client.
type seedTest struct {
	t      *testing.T
	d      *lab.Database
	store  *repo.Store
	worker job.ID
}

func newSeedTest(t *testing.T) *seedTest {
	t.Helper()
	url := repotest.URL(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	g := &seedTest{
		t: t, d: &lab.Database{URL: url, Conn: conn, Client: uuid.Must(uuid.NewV7())}, store: repotest.OpenURL(t, url),
		worker: job.ID(uuid.Must(uuid.NewV7())),
	}
	leases := g.store.NewLeases()
	defer leases.Close()
	require.NoError(t, leases.Register(t.Context(), g.worker, "w", 1, time.Hour))
	return g
}

// submit stores a job as the service does.
func (g *seedTest) submit(at *time.Time) job.ID {
	g.t.Helper()
	definition, err := lab.Catalogue.Define(job.Execute, job.PayloadSmall, time.Now(), nil)
	require.NoError(g.t, err)
	j := job.Job{
		ID: job.ID(uuid.Must(uuid.NewV7())), ClientID: job.ID(g.d.Client), Type: job.Execute, WorkKind: job.PayloadSmall, Definition: &definition,
		MaxAttempts: 4, Language: "en", RequestID: uuid.NewString(), ExecutionAt: at,
	}
	if at != nil {
		j.Type = job.Deferred
	}
	_, err = g.store.InsertJob(g.t.Context(), job.Submission{Job: j, RequestHash: sha256.Sum256(nil)})
	require.NoError(g.t, err)
	return j.ID
}

// finish brings a queued job to SUCCEEDED as a worker does.
func (g *seedTest) finish(id job.ID) {
	g.t.Helper()
	_, result, err := seedWork(g.t.Context())
	require.NoError(g.t, err)
	claim, _, err := g.store.Claim(g.t.Context(), g.worker, id, 1)
	require.NoError(g.t, err)
	require.NotNil(g.t, claim)
	_, err = g.store.Start(g.t.Context(), claim.Lease)
	require.NoError(g.t, err)
	_, err = g.store.Finish(g.t.Context(), job.Finish{Lease: claim.Lease, State: job.Succeeded, Result: result})
	require.NoError(g.t, err)
}

// shape gives of a job's rows whatever does not differ from one job to another:
// values, and of times and ids that they are there.
func (g *seedTest) shape(id job.ID) (shape string) {
	g.t.Helper()
	const varying = `'^(.*_at|job_id|client_id|event_id|request_id|worker_id|tx|event_tx|definition|sha256|body|duration_ms|dispatch_epoch)$'`
	shapeOf := func(table, order string) string {
		return `(SELECT coalesce(jsonb_agg((
			SELECT jsonb_object_agg(key, CASE WHEN value <> 'null' AND key ~ ` + varying + ` THEN '"set"' ELSE value END)
			FROM jsonb_each(to_jsonb(x))) ORDER BY ` + order + `), '[]') FROM ` + table + ` x WHERE job_id = $1)`
	}
	require.NoError(g.t, g.d.Conn.QueryRow(g.t.Context(), `SELECT jsonb_pretty(jsonb_build_object(
		'jobs', `+shapeOf("jobs", "attempt")+`, 'events', `+shapeOf("events", "seq")+`,
		'reports', `+shapeOf("reports", "attempt")+`, 'results', `+shapeOf("results", "attempt")+`))`, [16]byte(id)).Scan(&shape))
	return shape
}

// youngest is the last of the seeded jobs.
func (g *seedTest) youngest() job.ID {
	g.t.Helper()
	var id [16]byte
	require.NoError(g.t, g.d.Conn.QueryRow(g.t.Context(), "SELECT job_id FROM jobs ORDER BY job_id DESC LIMIT 1").Scan(&id))
	return job.ID(id)
}

func (g *seedTest) count(sql string) (n int) {
	g.t.Helper()
	require.NoError(g.t, g.d.Conn.QueryRow(g.t.Context(), "SELECT count(*)::int FROM "+sql).Scan(&n))
	return n
}

// A seeded job looks like one that the service brought to the same state.
func TestSeededJobsLookLikeTheService(t *testing.T) {
	t.Parallel()
	tomorrow := time.Now().Add(24 * time.Hour).Truncate(time.Microsecond)
	for _, test := range []struct {
		name string
		at   *time.Time
		seed func(*seedTest) error
		run  bool
	}{
		{"finished", nil, func(g *seedTest) error { return seedFinishedJobs(t.Context(), g.d, 300) }, true},
		{"queued", nil, func(g *seedTest) error { return seedQueuedJobs(t.Context(), g.d, 300) }, false},
		{"scheduled", &tomorrow, func(g *seedTest) error { return seedScheduledJobs(t.Context(), g.d, 300, tomorrow) }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := newSeedTest(t)
			require.NoError(t, test.seed(g))
			seededShape := g.shape(g.youngest())
			id := g.submit(test.at)
			if test.run {
				g.finish(id)
			}
			require.Equal(t, g.shape(id), seededShape)
			require.Equal(t, 301, g.count("jobs"))
		})
	}
}

// Seeded jobs go on as others do: workers take them, and the scheduler queues
// those whose time has come.
func TestSeededJobsGoOn(t *testing.T) {
	t.Parallel()
	g := newSeedTest(t)
	require.NoError(t, seedQueuedJobs(t.Context(), g.d, 20))
	rows, err := g.d.Conn.Query(t.Context(), "SELECT job_id FROM jobs ORDER BY run_at")
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	require.NoError(t, err)
	require.Len(t, ids, 20)
	require.True(t, slices.IsSortedFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }), "ids go with the time")
	for _, id := range ids {
		g.finish(job.ID(id))
	}
	require.NoError(t, seedScheduledJobs(t.Context(), g.d, 20, time.Now().Add(-time.Second)))
	due, err := g.store.QueueDue(t.Context(), 100)
	require.NoError(t, err)
	require.Len(t, due, 20)
	require.Equal(t, 40, g.count("jobs"))
	require.Equal(t, 20, g.count("reports"))
}

// Finished jobs are spread over clients and weeks, and only yesterday's results
// have bodies, so that the cleaner has nothing to do about them.
func TestSeededFinishedJobsAreSpread(t *testing.T) {
	t.Parallel()
	g := newSeedTest(t)
	require.NoError(t, seedFinishedJobs(t.Context(), g.d, 2_000))
	require.Equal(t, seedClients, g.count("(SELECT DISTINCT client_id FROM jobs) c"))
	require.Equal(t, 2_000/seedClients, g.count("jobs WHERE client_id = '"+g.d.Client.String()+"'"))
	require.InDelta(t, seedDays, g.count("(SELECT DISTINCT date_bin('1 day', created_at, now() - interval '29 days') FROM jobs) d"), 1)
	require.InDelta(t, 2_000/seedDays, g.count("results WHERE body IS NOT NULL"), 2)
	require.Zero(t, g.count("results WHERE body IS NOT NULL AND expires_at < now()"))
	require.Zero(t, g.count("jobs j JOIN events e USING (job_id, client_id) "+
		"WHERE e.seq = j.event_seq AND (e.occurred_at <> j.finished_at OR e.tx <> j.event_tx)"))
}

// An experiment for which there is not enough disk is not begun.
func TestNeedDisk(t *testing.T) {
	t.Parallel()
	require.NoError(t, needDisk(1))
	require.ErrorContains(t, needDisk(1<<60), "GB of disk")
}
