package overview

import (
	"crypto/sha256"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

func TestOverview(t *testing.T) {
	t.Parallel()
	store := repotest.OpenURL(t, repotest.URL(t))
	leases, worker, client := store.NewLeases(), app.NewID(), app.NewID()
	defer leases.Close()
	require.NoError(t, leases.Register(t.Context(), worker, "w", 20, time.Hour))
	lead, err := store.Lead(t.Context(), app.NewID(), time.Hour, 0)
	require.NoError(t, err)
	require.True(t, lead)
	var ids []job.ID
	began := time.Now()
	for range fewestEnded + 2 {
		j := job.Job{
			ID: app.NewID(), ClientID: client, Type: job.Execute, WorkKind: job.FailImmediate, MaxAttempts: 1, Language: "en", RequestID: "r",
			Definition: &job.Definition{WorkKind: job.FailImmediate, DurationMS: 1, PayloadSize: 1, ExpectedOutcome: "FAILED"},
		}
		_, err := store.InsertJob(t.Context(), job.Submission{Job: j, RequestHash: sha256.Sum256(j.ID[:])})
		require.NoError(t, err)
		ids = append(ids, j.ID)
	}
	for i, id := range ids[1:] {
		c, _, err := store.Claim(t.Context(), worker, id, 1)
		require.NoError(t, err)
		_, err = store.Start(t.Context(), c.ClaimID)
		require.NoError(t, err)
		if i == 0 {
			continue // this job stays RUNNING
		}
		failure := job.NewFailure(job.FailedImmediately, 1, job.Backoff{})
		_, err = store.Finish(t.Context(), job.Finish{ClaimID: c.ClaimID, State: job.Failed, Failure: failure, Exhausted: true})
		require.NoError(t, err)
	}
	const bucket = 10 * time.Second
	for at := began.Truncate(bucket); at.Before(time.Now()); at = at.Add(bucket) {
		require.NoError(t, store.WriteHistory(t.Context(), at))
	}
	o, err := Service{store}.Overview(t.Context(), admin.LastHour)
	require.NoError(t, err)
	require.Equal(t, map[job.State]int{job.Created: 0, job.Queued: 1, job.Assigned: 0, job.Running: 1}, o.States)
	require.Equal(t, map[job.State]int{job.Succeeded: 0, job.Failed: fewestEnded, job.Canceled: 0}, o.Ended)
	require.Equal(t, []int{1, 1, 60}, []int{o.Workers.Alive, o.Waiting.Due, o.History.StepSeconds})
	require.Equal(t, []admin.Attention{{Code: "many_failures", Href: "#/failures",
		Text: "100 % of the jobs that ended in the last 15 minutes failed: 5 of 5. Most often FAIL_IMMEDIATE with RFA_INTERNAL (5)."}},
		o.Attention)

	_, err = Service{store}.Overview(t.Context(), "2h")
	require.Equal(t, job.CodeValidationFailed, job.CodeOf(err))
}

var now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *job.Time {
	t := job.Time(now.Add(-d))
	return &t
}

type signs struct {
	admin.Situation
	recent   admin.Ends
	failures []admin.FailureGroup
}

func TestWhatAsksForAttention(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change           func(s *signs)
		code, href, text string
	}{
		"healthy service":              {func(*signs) {}, "", "", ""},
		"no leader":                    {func(s *signs) { s.LeaderGone = true }, "no_leader", "#/system", ""},
		"no worker, and jobs wait":     {func(s *signs) { s.Workers.Alive = 0 }, "no_workers", "#/workers", "and 2 jobs wait for one."},
		"no worker, and no job is due": {func(s *signs) { s.Workers.Alive, s.Waiting.Due = 0, 0 }, "no_workers", "#/workers", ""},
		"a silent worker": {func(s *signs) {
			s.Silent = []admin.SilentWorker{{Name: "w1", Held: 1, HeartbeatAt: *ago(17 * time.Second), ExpiresAt: *ago(-13 * time.Second)}}
		}, "silent_worker", "#/workers", "Worker w1 has sent no heartbeat for 17 seconds and holds 1 job. It counts as dead in 13 seconds."},
		"workers died": {func(s *signs) { s.Died = 2 }, "workers_died", "#/workers?state=DEAD", "2 workers died"},
		"lost workers": {func(s *signs) { s.LostWorkers, s.LostJobs = 1, 3 }, "lost_workers", "#/workers", "still holds 3 jobs"},
		"a job waits": {func(s *signs) { s.Waiting.OldestRunAt = ago(61 * time.Second) }, "jobs_late", "#/jobs?state=QUEUED",
			"2 jobs are due and wait for a worker; the oldest could have run 61 seconds ago. " +
				"In the last 15 minutes 90 were submitted, and 15 ended."},
		"many failures": {func(s *signs) {
			s.recent = admin.Ends{Succeeded: 7, Failed: 3}
			s.failures = []admin.FailureGroup{{WorkKind: job.FailImmediate, Code: job.CodeInternal, Count: 2}, {Count: 1}}
		}, "many_failures", "#/failures", "30 % of the jobs that ended in the last 15 minutes failed: 3 of 10. " +
			"Most often FAIL_IMMEDIATE with RFA_INTERNAL (2)."},
		"many failures, retried meanwhile": {func(s *signs) { s.recent = admin.Ends{Failed: 5} }, "many_failures", "#/failures",
			"100 % of the jobs that ended in the last 15 minutes failed: 5 of 5."},
		"too few jobs": {func(s *signs) { s.recent = admin.Ends{Failed: 4, Canceled: 100} }, "", "", ""},
		"a failing webhook": {func(s *signs) {
			s.Failing = admin.WebhookTrouble{Count: 1, WebhookID: &job.ID{1}, Failures: 616, Since: ago(time.Hour)}
		}, "webhooks_failing", "#/webhooks/01000000-0000-0000-0000-000000000000",
			"1 webhook fails: 616 attempts in a row failed, the first of them 60 minutes ago."},
		"failing webhooks": {func(s *signs) {
			s.Failing = admin.WebhookTrouble{Count: 2, WebhookID: &job.ID{1}, Failures: 5, Since: ago(time.Second)}
		}, "webhooks_failing", "#/webhooks?enabled=true",
			"2 webhooks fail: 5 attempts in a row failed at one, the first of them 1 second ago."},
		"disabled webhooks":      {func(s *signs) { s.Disabled.Count = 2 }, "webhooks_disabled", "#/webhooks?enabled=false", "2 webhooks are"},
		"deliveries are not due": {func(s *signs) { s.Deliveries.FirstDueAt = ago(-time.Hour) }, "", "", ""},
		"deliveries": {func(s *signs) { s.Deliveries.FirstDueAt = ago(3 * time.Hour) },
			"deliveries_late", "#/deliveries?state=PENDING", "3 hours"},
		"throttled clients": {func(s *signs) { s.Throttled = 1 }, "clients_throttled", "#/jobs?state=QUEUED", "1 client runs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := signs{recent: admin.Ends{Submitted: 90, Succeeded: 8, Failed: 2, Canceled: 5}, Situation: admin.Situation{
				AsOf:       job.Time(now),
				Waiting:    admin.WaitingJobs{Due: 2, OldestRunAt: ago(time.Minute), NextRunAt: ago(-time.Minute)},
				Workers:    admin.WorkerTotals{Alive: 2},
				Deliveries: admin.PendingDeliveries{FirstDueAt: ago(5 * time.Minute)},
			}}
			c.change(&s)
			got := attention(s.Situation, s.recent, s.failures)
			if c.code == "" {
				require.Equal(t, []admin.Attention{}, got)
				return
			}
			require.Len(t, got, 1)
			require.Equal(t, []string{c.code, c.href}, []string{got[0].Code, got[0].Href})
			require.Contains(t, got[0].Text, c.text)
		})
	}
}
