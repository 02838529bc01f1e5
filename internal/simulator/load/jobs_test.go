package load

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

type watchedJobs struct {
	*jobs
	ends   []string
	states map[string]int
}

func newWatched() *watchedJobs {
	w := &watchedJobs{states: map[string]int{}}
	w.jobs = newJobs(true, func(from, to string) { w.states[from]--; w.states[to]++ }, func(j *job) { w.ends = append(w.ends, j.state) })
	return w
}

type step func(t *testing.T, w *watchedJobs)

func accepted(held, auto bool) step {
	return func(_ *testing.T, w *watchedJobs) {
		w.accepted("a", client.Queued, held, func(j *job) { j.ticket, j.autoRetry = 1, auto })
	}
}

func streamed(attempt int, states ...string) step {
	return func(_ *testing.T, w *watchedJobs) {
		for _, state := range states {
			w.apply("a", update{state: state, attempt: attempt, at: time.Now(), retryable: true, streamed: true})
		}
	}
}

func answered(attempt int, state string) step {
	return func(_ *testing.T, w *watchedJobs) {
		w.apply("a", update{state: state, attempt: attempt, at: time.Now()})
	}
}

func released(_ *testing.T, w *watchedJobs)  { w.release("a") }
func exhausted(_ *testing.T, w *watchedJobs) { w.exhausted("a") }

func shows(attempt int, state string) step {
	return func(t *testing.T, w *watchedJobs) {
		require.Empty(t, w.ends)
		got, n, _ := w.look("a")
		require.Equal(t, state, got)
		require.Equal(t, attempt, n)
		require.Equal(t, 1, w.states[state])
	}
}

func TestJobLifecycle(t *testing.T) {
	t.Parallel()
	const (
		queued, assigned, running = client.Queued, client.Assigned, client.Running
		failed, succeeded         = client.Failed, client.Succeeded
	)
	unknown := func(t *testing.T, w *watchedJobs) { require.Empty(t, w.ends, "the ticket of the job is unknown") }
	forGood := func(_ *testing.T, w *watchedJobs) {
		w.apply("a", update{state: failed, attempt: 1, at: time.Now(), streamed: true})
	}
	for name, c := range map[string]struct {
		end   string
		steps []step
	}{
		"without retries": {succeeded, []step{
			accepted(false, false), streamed(1, assigned, running), shows(1, running), streamed(1, succeeded),
		}},
		"events before the response": {succeeded, []step{streamed(1, queued, running, succeeded), unknown, accepted(false, false)}},
		"late events": {succeeded, []step{
			accepted(true, false), streamed(1, running, assigned), shows(1, running), streamed(1, failed), streamed(2, queued),
			streamed(1, failed), shows(2, queued), released, streamed(2, succeeded),
		}},
		"retried by the server": {failed, []step{
			accepted(false, true), streamed(1, failed), shows(1, failed), streamed(2, queued, failed),
			exhausted, exhausted,
		}},
		"a final failure": {failed, []step{accepted(false, true), forGood}},
		"the stream shows the end late": {succeeded, []step{
			accepted(true, false), answered(1, succeeded), released, shows(1, succeeded),
			streamed(1, assigned, succeeded),
		}},
		"a late poll response": {succeeded, []step{
			accepted(false, false), streamed(1, running, succeeded), answered(1, running),
		}},
		"the stream skips the end of the first attempt": {succeeded, []step{
			accepted(true, false), streamed(1, failed), answered(2, queued), answered(2, succeeded), released, shows(2, succeeded),
			streamed(2, succeeded),
		}},
	} {
		w := newWatched()
		for _, s := range c.steps {
			s(t, w)
		}
		require.Equal(t, []string{c.end}, w.ends, name)
		require.Empty(t, w.byID, name)
		require.Empty(t, w.waiting(time.Now()), name)
		require.Equal(t, 1, w.states[c.end], name)
		require.Zero(t, w.states[running], name)
	}
}

func TestDrainSkipsJobsScheduledBeyondTheLimit(t *testing.T) {
	t.Parallel()
	w := newWatched()
	w.accepted("a", client.Created, false, func(j *job) { j.ticket, j.waits = 1, time.Now().Add(time.Hour) })
	require.Empty(t, w.waiting(time.Now().Add(time.Minute)))
	require.Len(t, w.waiting(time.Now().Add(2*time.Hour)), 1)
}
