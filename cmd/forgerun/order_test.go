package main

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// submitFrom has 15 senders of one client submit n jobs each, one after the other,
// to the processes in turn, and waits until all have ended.
func (s *stack) submitFrom(u *user, n int, apis ...*proc) []string {
	s.t.Helper()
	const senders = 15
	ids := make([][]string, senders)
	var all sync.WaitGroup
	for i := range senders {
		all.Go(func() {
			for range n {
				a := u.trySubmit(apis[i%len(apis)], execute("PAYLOAD_SMALL"))
				if a.err == nil && a.status == 202 {
					ids[i] = append(ids[i], a.text("job_id"))
				}
			}
		})
	}
	all.Wait()
	flat := slices.Concat(ids...)
	require.Len(s.t, flat, senders*n)
	s.awaitFinal(flat...)
	return flat
}

// displaced gives the number of jobs that started before one that was created
// earlier, the most places and the longest time of creation between two such jobs.
func (s *stack) displaced(ids []string) (jobs, places int, distance time.Duration) {
	s.t.Helper()
	err := s.db.QueryRow(s.ctx(), `
		WITH j AS (SELECT created_at, started_at FROM jobs WHERE job_id = ANY($1::uuid[])),
		d AS (SELECT count(*) AS places, j.created_at - min(o.created_at) AS distance
			FROM j JOIN j o ON o.created_at < j.created_at AND o.started_at > j.started_at GROUP BY j.created_at, j.started_at)
		SELECT count(*), coalesce(max(places), 0), coalesce(max(distance), '0') FROM d`, ids).Scan(&jobs, &places, &distance)
	require.NoError(s.t, err)
	return jobs, places, distance
}

// lateCommits is how many jobs had a commit so long that others did not wait for it.
func lateCommits(api *proc) float64 { return api.metric("submissions_out_of_order_total") }

// notEnqueued is how many tasks Redis did not take within a second, and those that the relay dispatched in their place:
// it takes what is committed, and does not wait for what is not.
func notEnqueued(api *proc) float64 {
	all := api.scrape()
	total := sum(all, "tasks_dispatched_total", "result", "ok")
	for _, result := range []string{"failed", "dropped", "skipped"} {
		total += sum(all, "tasks_enqueued_total", "result", result)
	}
	return total
}

// Section 12: jobs are dequeued in creation order. Commits that take longer than a
// second, and tasks that Redis did not take within a second, are left out of that,
// and counted: such a round is repeated.
func TestJobsStartInTheOrderOfTheirCreation(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_WORKER_CONCURRENCY": "1"})
	api := s.startLeader()
	s.startWorker()
	u := s.newUser(api)
	for range 5 {
		late, failed := lateCommits(api), notEnqueued(api)
		ids := s.submitFrom(u, 14, api)
		jobs, places, distance := s.displaced(ids)
		if lateCommits(api) > late || notEnqueued(api) > failed {
			continue
		}
		require.Zero(t, jobs, "%d jobs started before older ones, by up to %d places and %v", jobs, places, distance)
		break
	}
	s.checkInvariants()
}

// Across processes the order is that of the hand-overs: of commits that take less
// than a second, none is further from its place. A round with longer ones, on a
// machine that is busy with other tests, is repeated.
func TestOrderAcrossProcesses(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_WORKER_CONCURRENCY": "1"})
	apis := []*proc{s.startLeader(), s.startAPI()}
	s.startWorker()
	u := s.newUser(apis[0])
	within := false
	for round := 0; round < 5 && !within; round++ {
		ids := s.submitFrom(u, 14, apis...)
		jobs, places, distance := s.displaced(ids)
		t.Logf("%d of %d jobs started before older ones, by up to %d places and %v", jobs, len(ids), places, distance)
		within = distance < time.Second
	}
	require.True(t, within)
	s.checkInvariants()
}
