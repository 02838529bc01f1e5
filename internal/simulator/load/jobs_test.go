package load

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// watched is a registry whose ends and counts of states can be seen.
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

func ticketed(auto bool) func(*job) {
	return func(j *job) { j.ticket, j.autoRetry = 1, auto }
}

func at(state string, attempt int) update {
	return update{state: state, attempt: attempt, at: time.Now(), retryable: true, streamed: true}
}

func TestAJobIsForgottenAtItsEnd(t *testing.T) {
	t.Parallel()
	w := newWatched()
	w.accepted("a", queued, false, ticketed(false))
	for _, state := range []string{assigned, running} {
		w.saw("a", at(state, 1))
		require.Equal(t, 1, w.waiting(time.Now()))
	}
	w.saw("a", at(succeeded, 1))
	require.Equal(t, []string{succeeded}, w.ends)
	require.Zero(t, w.open.Load())
	require.Equal(t, 1, w.states[succeeded])
	require.Zero(t, w.states[running])
}

func TestEventsThatAreQuickerThanTheAnswer(t *testing.T) {
	t.Parallel()
	w := newWatched()
	for _, state := range []string{created, queued, assigned, running, succeeded} {
		w.saw("a", at(state, 1))
	}
	require.Empty(t, w.ends, "it is not known whose it is")
	w.accepted("a", queued, false, ticketed(false))
	require.Equal(t, []string{succeeded}, w.ends)
	require.Zero(t, w.open.Load())
}

func TestNewsThatComeLateChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWatched()
	w.accepted("a", queued, true, ticketed(false))
	w.saw("a", at(running, 1))
	w.saw("a", at(assigned, 1))
	state, _, _ := w.look("a")
	require.Equal(t, running, state)
	w.saw("a", at(failed, 1))
	w.saw("a", at(queued, 2))
	w.saw("a", at(failed, 1))
	state, attempt, _ := w.look("a")
	require.Equal(t, queued, state)
	require.Equal(t, 2, attempt)
}

func TestALeaseThatExpiredSetsAJobBack(t *testing.T) {
	t.Parallel()
	w := newWatched()
	w.accepted("a", queued, false, ticketed(false))
	w.saw("a", at(assigned, 1))
	w.saw("a", at(queued, 1))
	require.Equal(t, 1, w.states[queued])
	w.saw("a", at(assigned, 1))
	w.saw("a", at(running, 1))
	w.saw("a", at(succeeded, 1))
	require.Equal(t, []string{succeeded}, w.ends)
}

func TestAHeldJobIsKeptUntilItIsReleased(t *testing.T) {
	t.Parallel()
	w := newWatched()
	w.accepted("a", queued, true, ticketed(false))
	_, _, changed := w.look("a")
	w.saw("a", at(failed, 1))
	select {
	case <-changed:
	default:
		t.Fatal("who waits for update is not told")
	}
	require.Empty(t, w.ends)
	w.saw("a", at(queued, 2)) // it was retried
	w.release("a")
	require.Empty(t, w.ends)
	w.saw("a", at(succeeded, 2))
	require.Equal(t, []string{succeeded}, w.ends)
}

func TestAJobThatTheServerRetriesGoesOn(t *testing.T) {
	t.Parallel()
	w := newWatched()
	w.accepted("a", queued, false, ticketed(true))
	w.saw("a", at(failed, 1))
	require.Empty(t, w.ends)
	w.saw("a", at(queued, 2))
	w.saw("a", at(failed, 2))
	w.exhausted("a")
	require.Equal(t, []string{failed}, w.ends)
	w.exhausted("a")
	require.Zero(t, w.open.Load(), "a forgotten job is not brought back")

	w.accepted("b", queued, false, ticketed(true))
	w.saw("b", update{state: failed, attempt: 1, at: time.Now(), streamed: true}) // a failure for good
	require.Len(t, w.ends, 2)
}

// A poll, or the answer to a cancel, may know the end before the stream tells it.
func TestAJobIsKeptUntilItsEndWasStreamed(t *testing.T) {
	t.Parallel()
	w := newWatched()
	w.accepted("a", queued, true, ticketed(false))
	w.saw("a", update{state: canceled, attempt: 1, at: time.Now()})
	w.release("a")
	require.Empty(t, w.ends)
	require.Equal(t, 1, w.waiting(time.Now()))
	w.saw("a", at(assigned, 1)) // on its way still
	w.saw("a", at(canceled, 1))
	require.Equal(t, []string{canceled}, w.ends)
	require.Zero(t, w.open.Load())
	require.Equal(t, 1, w.states[canceled])
}

func TestTheEndOfARetriedAttemptHasToBeStreamedToo(t *testing.T) {
	t.Parallel()
	w := newWatched()
	w.accepted("a", queued, true, ticketed(false))
	w.saw("a", at(failed, 1))
	w.saw("a", update{state: queued, attempt: 2, at: time.Now()})    // the retry's answer
	w.saw("a", update{state: succeeded, attempt: 2, at: time.Now()}) // a poll
	w.release("a")
	require.Empty(t, w.ends)
	w.saw("a", at(succeeded, 2))
	require.Equal(t, []string{succeeded}, w.ends)
}

func TestScheduledJobsBeyondTheLimitAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWatched()
	w.accepted("a", created, false, func(j *job) { j.ticket, j.waits = 1, time.Now().Add(time.Hour) })
	require.Zero(t, w.waiting(time.Now().Add(time.Minute)))
	require.Equal(t, 1, w.waiting(time.Now().Add(2*time.Hour)))
}
