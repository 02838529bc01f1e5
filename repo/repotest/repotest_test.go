package repotest

import (
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// Tests that run at the same time have databases of their own, which are dropped with them, connected or not.
func TestEachTestHasADatabase(t *testing.T) {
	t.Parallel()
	names := make(chan string, 8)
	t.Run("at once", func(t *testing.T) {
		for range cap(names) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				var s *repo.Store
				t.Cleanup(func() { s.Close() }) // after the database is gone
				u, err := url.Parse(URL(t))
				require.NoError(t, err)
				names <- strings.TrimPrefix(u.Path, "/")
				s, err = repo.Open(Config(t, u.String()))
				require.NoError(t, err)
				require.NoError(t, s.Ping(t.Context()), "it has the schema")
			})
		}
	})
	close(names)
	for name := range names {
		var exists bool
		err := shared.admin.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&exists)
		require.NoError(t, err)
		require.False(t, exists, name)
	}
}

// A check that cannot fail proves nothing.
func TestViolationsSeeDamage(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	due := at(2)
	sound := func() *Job {
		return &Job{
			ID: "j", State: job.Succeeded, Outcome: "SUCCESS", Attempt: 2, EventSeq: 11, Fence: 3, LeaseExpiries: 1,
			RunAt: at(2), UpdatedAt: at(9), ExecutionAt: &due, StartedAt: &due, Result: 2,
			events: []event{
				{"j", job.EventCreated, 1, "", job.Created, 1, at(1)},
				{"j", job.EventQueued, 2, job.Created, job.Queued, 1, at(2)},
				{"j", job.EventAssigned, 3, job.Queued, job.Assigned, 1, at(2)},
				{"j", job.EventRunning, 4, job.Assigned, job.Running, 1, at(2)},
				{"j", job.EventFailed, 5, job.Running, job.Failed, 1, at(3)},
				{"j", job.EventRetried, 6, job.Failed, job.Queued, 2, at(4)},
				{"j", job.EventAssigned, 7, job.Queued, job.Assigned, 2, at(5)},
				{"j", job.EventLeaseExpired, 8, job.Assigned, job.Queued, 2, at(6)},
				{"j", job.EventAssigned, 9, job.Queued, job.Assigned, 2, at(7)},
				{"j", job.EventRunning, 10, job.Assigned, job.Running, 2, at(8)},
				{"j", job.EventSucceeded, 11, job.Running, job.Succeeded, 2, at(9)},
			},
			reports: []report{{"j", 1, "FAILED", 5, at(3)}, {"j", 2, "SUCCESS", 11, at(9)}},
		}
	}
	require.Empty(t, sound().violations())

	damages := map[string]func(j *Job){
		"an event is lost":       func(j *Job) { j.events = append(j.events[:4], j.events[5:]...) },
		"a gap in seq":           func(j *Job) { j.events[10].Seq = 12 },
		"a broken chain":         func(j *Job) { j.events[4].Prev = job.Assigned },
		"a forbidden step":       func(j *Job) { j.events[7].Name = job.EventQueued },
		"time runs backwards":    func(j *Job) { j.events[5].At = at(2) },
		"another state":          func(j *Job) { j.State, j.Outcome, j.Result = job.Failed, "FAILED", 0 },
		"no outcome":             func(j *Job) { j.Outcome = "" },
		"early":                  func(j *Job) { late := at(3); j.ExecutionAt = &late },
		"no report":              func(j *Job) { j.reports = j.reports[:1] },
		"no earlier report":      func(j *Job) { j.reports = j.reports[1:] },
		"a report too many":      func(j *Job) { j.reports = append(j.reports, report{"j", 3, "FAILED", 11, at(9)}) },
		"a report of another":    func(j *Job) { j.reports[1].Outcome = "FAILED" },
		"a report that is short": func(j *Job) { j.reports[1].EventSeq = 10 },
		"an attempt ended twice": func(j *Job) { j.events[8] = j.events[10]; j.events[8].Seq = 9 },
		"a claim without fence":  func(j *Job) { j.Fence = 2 },
		"uncounted lease":        func(j *Job) { j.LeaseExpiries = 0 },
		"no result":              func(j *Job) { j.Result = 0 },
		"event_seq is off":       func(j *Job) { j.EventSeq = 10 },
		"updated at no event":    func(j *Job) { j.UpdatedAt = at(8) },
	}
	for name, damage := range damages {
		j := sound()
		damage(j)
		wrong := j.violations()
		require.NotEmpty(t, wrong, name)
		require.Contains(t, wrong[0], "INVARIANT ", name)
	}
}
