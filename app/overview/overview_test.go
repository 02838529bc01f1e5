package overview

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

// fakeStore answers with what it was given.
type fakeStore struct {
	now     admin.Situation
	buckets []admin.HistoryBucket
	ends    map[time.Duration]admin.Ends
	groups  []admin.FailureGroup
	fails   string // what cannot be read

	window admin.Window
	looked *time.Time // from when on failures were grouped
}

var errStorage = errors.New("storage is away")

func (s *fakeStore) read(what string) error {
	if s.fails == what {
		return errStorage
	}
	return nil
}

func (s *fakeStore) Situation(context.Context) (admin.Situation, error) {
	return s.now, s.read("situation")
}

func (s *fakeStore) History(_ context.Context, w admin.Window) ([]admin.HistoryBucket, error) {
	s.window = w
	return s.buckets, s.read("history")
}

func (s *fakeStore) Ends(_ context.Context, last time.Duration) (admin.Ends, error) {
	return s.ends[last], s.read("ends of " + last.String())
}

func (s *fakeStore) Failures(_ context.Context, r admin.Range) (admin.Bounded[admin.FailureGroup], error) {
	s.looked = r.From
	return admin.Bounded[admin.FailureGroup]{Data: s.groups}, s.read("failures")
}

var now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *job.Time {
	t := job.Time(now.Add(-d))
	return &t
}

// sound is a service at which nobody needs to look.
func sound() *fakeStore {
	s := &fakeStore{ends: map[time.Duration]admin.Ends{
		endsBack: {Succeeded: 900, Failed: 90, Canceled: 9}, recentBack: {Submitted: 90, Succeeded: 8, Failed: 2, Canceled: 5},
	}}
	s.now = admin.Situation{
		AsOf: job.Time(now), Created: 1, Queued: 2, Assigned: 3, Running: 4,
		Waiting:    admin.WaitingJobs{Count: admin.Count{Count: 3}, Due: 2, OldestRunAt: ago(time.Minute), NextRunAt: ago(-time.Minute)},
		Workers:    admin.WorkerTotals{Alive: 2, Slots: 20, Held: 7},
		Deliveries: admin.PendingDeliveries{Count: admin.Count{Count: 8}, FirstDueAt: ago(5 * time.Minute)},
	}
	s.buckets = []admin.HistoryBucket{{At: job.Time(now.Add(-time.Minute)), Submitted: 5}}
	return s
}

func overviewOf(t *testing.T, s *fakeStore) *admin.Overview {
	t.Helper()
	o, err := Service{s}.Overview(t.Context(), admin.LastHour)
	require.NoError(t, err)
	return o
}

func TestOverviewOfASoundService(t *testing.T) {
	t.Parallel()
	s := sound()
	encoded, err := json.Marshal(overviewOf(t, s))
	require.NoError(t, err)
	require.JSONEq(t, `{
		"as_of": "2026-11-24T12:00:00.000000Z",
		"states": {"CREATED": 1, "QUEUED": 2, "ASSIGNED": 3, "RUNNING": 4},
		"ended": {"SUCCEEDED": 900, "FAILED": 90, "CANCELED": 9},
		"waiting": {"count": 3, "more": false, "due": 2, "oldest_run_at": "2026-11-24T11:59:00.000000Z",
			"next_run_at": "2026-11-24T12:01:00.000000Z"},
		"workers": {"alive": 2, "slots": 20, "held": 7},
		"deliveries": {"count": 8, "more": false, "first_due_at": "2026-11-24T11:55:00.000000Z"},
		"history": {"step_seconds": 60, "buckets": [{"at": "2026-11-24T11:59:00.000000Z", "submitted": 5, "succeeded": 0, "failed": 0,
			"canceled": 0, "retried": 0, "wait_ms_p50": null, "wait_ms_p99": null, "run_ms_p50": null, "run_ms_p99": null}]},
		"attention": []
	}`, string(encoded))
	require.Equal(t, admin.LastHour, s.window)
	require.Nil(t, s.looked, "failures are looked at one by one only if there are many")
}

func TestWhatAsksForAttention(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(s *fakeStore)
		want   []admin.Attention
	}{
		"no leader": {func(s *fakeStore) { s.now.LeaderGone = true }, []admin.Attention{{Code: NoLeader,
			Text: "No process leads the maintenance: what is scheduled, lost or retried waits until one does.", Href: "#/system"}}},
		"no worker, and jobs wait": {func(s *fakeStore) { s.now.Workers.Alive = 0 }, []admin.Attention{{Code: NoWorkers,
			Text: "No worker is alive, and 2 jobs wait for one.", Href: "#/workers"}}},
		"no worker, and no job is due": {func(s *fakeStore) { s.now.Workers.Alive, s.now.Waiting.Due = 0, 0 }, []admin.Attention{{
			Code: NoWorkers, Text: "No worker is alive: nothing that is submitted runs.", Href: "#/workers"}}},
		"a silent worker": {func(s *fakeStore) {
			s.now.Silent = []admin.SilentWorker{{Name: "w1", Held: 1, HeartbeatAt: *ago(17 * time.Second), ExpiresAt: *ago(-13 * time.Second)}}
		}, []admin.Attention{{Code: SilentWorker, Href: "#/workers",
			Text: "Worker w1 has sent no heartbeat for 17 seconds, and holds 1 job: it is taken for dead in 13 seconds."}}},
		"workers died": {func(s *fakeStore) { s.now.Died = 2 }, []admin.Attention{{Code: WorkersDied, Href: "#/workers?state=DEAD",
			Text: "2 workers died in the last 15 minutes: the heartbeats ended without a shutdown."}}},
		"lost workers": {func(s *fakeStore) { s.now.LostWorkers, s.now.LostJobs = 1, 3 }, []admin.Attention{{Code: LostWorkers,
			Text: "1 worker without a lease still holds 3 jobs: the leader should have given them back.", Href: "#/workers"}}},
		"a job waits": {func(s *fakeStore) { s.now.Waiting.OldestRunAt = ago(61 * time.Second) }, []admin.Attention{{Code: JobsLate,
			Text: "2 jobs are due and wait for a worker; the one that waits longest could have run 61 seconds ago. " +
				"In the last 15 minutes 90 were submitted, and 15 ended.", Href: "#/jobs?state=QUEUED"}}},
		"many failures": {func(s *fakeStore) {
			s.ends[recentBack] = admin.Ends{Succeeded: 7, Failed: 3}
			s.groups = []admin.FailureGroup{{WorkKind: job.FailImmediate, Code: job.CodeInternal, Count: 2}, {Count: 1}}
		}, []admin.Attention{{Code: ManyFailures, Text: "30 % of the jobs that ended in the last 15 minutes failed: 3 of 10. " +
			"Most often FAIL_IMMEDIATE with RFA_INTERNAL (2).", Href: "#/failures"}}},
		"many failures, retried meanwhile": {func(s *fakeStore) { s.ends[recentBack] = admin.Ends{Failed: 5} }, []admin.Attention{{
			Code: ManyFailures, Text: "100 % of the jobs that ended in the last 15 minutes failed: 5 of 5.", Href: "#/failures"}}},
		"few jobs say nothing": {func(s *fakeStore) { s.ends[recentBack] = admin.Ends{Failed: 4, Canceled: 100} }, nil},
		"a failing webhook": {func(s *fakeStore) {
			s.now.Failing = admin.WebhookTrouble{Count: 1, WebhookID: &job.ID{1}, Failures: 616, Since: ago(time.Hour)}
		}, []admin.Attention{{Code: WebhooksFailing, Text: "1 webhook fails: 616 attempts in a row failed, the first of them 60 minutes ago.",
			Href: "#/webhooks/01000000-0000-0000-0000-000000000000"}}},
		"failing webhooks": {func(s *fakeStore) {
			s.now.Failing = admin.WebhookTrouble{Count: 2, WebhookID: &job.ID{1}, Failures: 5, Since: ago(time.Second)}
		}, []admin.Attention{{Code: WebhooksFailing, Href: "#/webhooks?enabled=true",
			Text: "2 webhooks fail: 5 attempts in a row failed at one, the first of them 1 second ago."}}},
		"disabled webhooks": {func(s *fakeStore) { s.now.Disabled.Count = 2 }, []admin.Attention{{Code: WebhooksDisabled,
			Text: "2 webhooks are disabled by the service, because their receiver failed or is gone.", Href: "#/webhooks?enabled=false"}}},
		"deliveries are not due": {func(s *fakeStore) { s.now.Deliveries.FirstDueAt = ago(-time.Hour) }, nil},
		"deliveries": {func(s *fakeStore) { s.now.Deliveries.FirstDueAt = ago(3 * time.Hour) }, []admin.Attention{{Code: DeliveriesLate,
			Text: "The delivery that waits longest was due 3 hours ago.", Href: "#/deliveries?state=PENDING"}}},
		"throttled clients": {func(s *fakeStore) { s.now.Throttled = 1 }, []admin.Attention{{Code: ClientsThrottled,
			Text: "1 client runs as many jobs as one client may: more of theirs wait until some end.", Href: "#/jobs?state=QUEUED"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sound()
			c.change(s)
			if c.want == nil {
				c.want = []admin.Attention{}
			}
			require.Equal(t, c.want, overviewOf(t, s).Attention)
			if len(c.want) > 0 && c.want[0].Code == ManyFailures {
				require.Equal(t, now.Add(-recentBack), *s.looked)
			}
		})
	}
}

func TestOverviewNeedsItsParts(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"situation", "history", "ends of 24h0m0s", "ends of 15m0s", "failures"} {
		s := sound()
		s.ends[recentBack] = admin.Ends{Failed: 10}
		s.fails = part
		_, err := Service{s}.Overview(t.Context(), admin.LastDay)
		require.ErrorIs(t, err, errStorage, part)
	}
	_, err := Service{sound()}.Overview(t.Context(), "2h")
	require.Equal(t, job.CodeValidationFailed, job.CodeOf(err))
}
