package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercentilesAreThoseOfASortedList(t *testing.T) {
	t.Parallel()
	r := newRecorder(began, (&clock{began}).read)
	random := rand.New(rand.NewPCG(3, 4))
	var all []time.Duration
	for range 20_000 {
		took := time.Duration(math.Exp(random.NormFloat64()*2+2) * float64(time.Millisecond))
		all = append(all, took)
		r.Answered(began, began.Add(took), Accepted)
	}
	slices.Sort(all)
	got := r.Snapshot().Numbers.Submit
	require.EqualValues(t, len(all), got.Count)
	for q, value := range map[float64]time.Duration{0.5: got.P50, 0.9: got.P90, 0.95: got.P95, 0.99: got.P99, 0.999: got.P999, 1: got.Max} {
		want := all[int(math.Ceil(q*float64(len(all))))-1]
		require.InEpsilon(t, want.Seconds(), value.Seconds(), 0.002, "%v", q)
	}
}

// The service stands still for a second while requests are due every 10 ms. All
// that were due meanwhile are late, though each was answered at once when it was
// sent at last.
func TestAStallIsNotOmitted(t *testing.T) {
	t.Parallel()
	c := &clock{began}
	r := newRecorder(began, c.read)
	stall, over := began.Add(4*time.Second), began.Add(5*time.Second)
	for n := range 1000 {
		intended := began.Add(time.Duration(n) * 10 * time.Millisecond)
		sent := intended
		if intended.After(stall) && intended.Before(over) {
			sent = over
		}
		r.Sent(intended)
		r.Answered(intended, sent.Add(time.Millisecond), Accepted)
	}
	c.now = began.Add(10 * time.Second)
	run := r.Run()
	require.InDelta(t, time.Millisecond, run.Numbers.Submit.P50, float64(50*time.Microsecond))
	require.InDelta(t, 900*time.Millisecond, run.Numbers.Submit.P99, float64(20*time.Millisecond), "1 % of all waited longer than 0.9 s")
	require.Greater(t, *run.Series.SubmitP99[5], 900.0, "the answers came in the sixth second")
	require.EqualValues(t, 1, run.Series.Answers[Accepted][4], "and but for the first, none in the fifth")
	require.Less(t, *run.Series.SubmitP99[6], 2.0)
}

func TestLatenciesBeyondTheHistogramCountAsItsLimits(t *testing.T) {
	t.Parallel()
	r := newRecorder(began, (&clock{began}).read)
	for _, took := range []time.Duration{-time.Second, 0, 5 * time.Hour} {
		r.Answered(began, began.Add(took), Accepted)
		r.Finished(began, began.Add(took), "FAILED")
	}
	got := r.Run().Numbers
	require.Equal(t, []int64{3, 3}, []int64{got.Submit.Count, got.Finish.Count})
	require.Equal(t, shortest, got.Submit.Min)
	require.Equal(t, longest, got.Submit.Max)
}

func TestSeriesOfALongRunStayShortAndLoseNothing(t *testing.T) {
	t.Parallel()
	c := &clock{began}
	r := newRecorder(began, c.read)
	const seconds = 36_000
	for s := range seconds {
		c.now = began.Add(time.Duration(s) * time.Second)
		r.Sent(c.now)
		r.Answered(c.now, c.now.Add(time.Duration(1+s%7)*time.Millisecond), Accepted)
		r.Moved("", "QUEUED")
		r.Workers(s / 3600)
		r.Delivered(c.now, s%2 == 0)
	}
	c.now = began.Add(seconds * time.Second)
	s := r.Run().Series
	require.Equal(t, 64_000.0, s.StepMS)
	require.LessOrEqual(t, len(s.Arrivals), maxPoints)
	require.EqualValues(t, seconds, totalOf(s.Arrivals))
	require.EqualValues(t, seconds/2, totalOf(s.Taken))
	require.EqualValues(t, seconds/2, totalOf(s.NotTaken))
	queued := s.States["QUEUED"]
	for i := range len(s.Arrivals) - 1 {
		require.EqualValues(t, 64, s.Arrivals[i])
		require.EqualValues(t, 64, s.Answers[Accepted][i])
		require.InEpsilon(t, 4, *s.SubmitP50[i], 0.02)
		require.InEpsilon(t, 7, *s.SubmitP99[i], 0.02)
		require.Nil(t, s.FinishP50[i])
		require.EqualValues(t, 64*(i+1), queued[i], "jobs at the end of step %d", i)
		require.EqualValues(t, (64*i+63)/3600, s.Workers[i], "step %d", i)
	}
	require.EqualValues(t, seconds, queued[len(queued)-1])
}

func TestLevelsHoldWhileNothingHappens(t *testing.T) {
	t.Parallel()
	c := &clock{began}
	r := newRecorder(began, c.read)
	r.Workers(2)
	r.Moved("", "QUEUED")
	c.now = began.Add(3 * time.Second)
	r.Moved("QUEUED", "RUNNING")
	r.Workers(5)
	c.now = began.Add(5 * time.Second)
	s := r.Run().Series
	require.Equal(t, []int64{2, 2, 2, 5, 5, 5}, s.Workers)
	require.Equal(t, []int64{1, 1, 1, 0, 0, 0}, s.States["QUEUED"])
	require.Equal(t, []int64{0, 0, 0, 1, 1, 1}, s.States["RUNNING"])
}
