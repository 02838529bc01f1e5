package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLongSeriesStayShort(t *testing.T) {
	t.Parallel()
	c := &clock{began}
	r := newRecorder(began, c.read)
	const seconds = 36_000
	for s := range seconds {
		c.now = began.Add(time.Duration(s) * time.Second)
		r.Sent(1)
		r.Answered(time.Duration(1+s%7)*time.Millisecond, Accepted)
		r.Moved("", "QUEUED")
		r.Workers(s / 3600)
		r.Delivered(s%2 == 0)
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
