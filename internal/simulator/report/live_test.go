package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// busyRecorder has something to say on every row.
func busyRecorder(c *clock) *Recorder {
	r := newRecorder(began, c.read)
	r.Stage("load")
	for i := range 1000 {
		at := began.Add(time.Duration(i) * 20 * time.Millisecond)
		c.now = at
		r.Sent(at)
		r.Answered(at, at.Add(5*time.Millisecond), Accepted)
		r.Moved("", "QUEUED")
		r.Finished(at, at.Add(time.Second), "SUCCEEDED")
		r.Delivered(at, i%10 > 0)
	}
	r.Answered(began, began.Add(time.Second), Refused)
	r.Workers(3)
	r.Fault("kill", "worker 2", c.now.Add(-2*time.Second), c.now.Add(-2*time.Second), 1)
	return r
}

func TestLiveBlockIsDrawnInPlace(t *testing.T) {
	t.Parallel()
	for _, size := range []struct{ width, height, rows int }{{80, 24, 10}, {200, 24, 10}, {12, 24, 10}, {3, 24, 10}, {80, 5, 4}} {
		c := &clock{began}
		r := busyRecorder(c)
		screen := newTerminal(size.width, size.height)
		l := newLive(screen, r, LiveOptions{Scenario: "steady", Duration: time.Minute}, screen.size)
		l.show()
		before := screen.text()
		require.Equal(t, size.rows, strings.Count(before, "\n")+1, "%+v: no row wraps:\n%s", size, before)
		require.True(t, screen.hidden)
		for range 5 {
			c.now = c.now.Add(time.Second)
			l.show()
		}
		require.Equal(t, size.rows, strings.Count(screen.text(), "\n")+1, "still the same block")
		if size.width >= 60 {
			require.NotEqual(t, before, screen.text(), "it shows what is new")
		}
		require.Empty(t, screen.strange)
		require.Zero(t, screen.colors)
		close(l.ended)
		l.Stop()
		l.Stop()
		require.Empty(t, screen.text(), "nothing is left")
		require.False(t, screen.hidden, "the cursor is back")
	}
}

func TestLiveBlockSaysWhatIsGoingOn(t *testing.T) {
	t.Parallel()
	c := &clock{began}
	r := busyRecorder(c)
	screen := newTerminal(80, 24)
	l := newLive(screen, r, LiveOptions{Scenario: "steady", Duration: 40 * time.Second}, screen.size)
	l.screen.color = true
	l.show()
	text := screen.text()
	require.NotContains(t, text, "…", "it fits 80 columns:\n%s", text)
	for _, want := range []string{
		"steady", "load", "50 %", "0:20", "left 0:20", "1,000",
		"50.1/s", "p99.9", "queued 1,000", "refused 1", "kill worker 2, 0:02 ago", "not taken 100",
	} {
		require.Contains(t, text, want)
	}
	require.Positive(t, screen.colors)
	close(l.ended)
}

// What somebody else writes on the terminal stands above the block, whole.
func TestOtherLinesDoNotGarbleTheBlock(t *testing.T) {
	t.Parallel()
	c := &clock{began}
	r := busyRecorder(c)
	screen := newTerminal(80, 24)
	l := newLive(screen, r, LiveOptions{Scenario: "steady"}, screen.size)
	write := func(text string) {
		n, err := l.Write([]byte(text))
		require.NoError(t, err)
		require.Equal(t, len(text), n)
	}
	write("before\n")
	l.show()
	l.show()
	block := strings.TrimPrefix(screen.text(), "before\n")
	write("one\ntwo\nthr")
	require.Equal(t, "before\none\ntwo\n"+block, screen.text())
	for range 30 {
		l.show()
	}
	write("ee\n" + strings.Repeat("long", 50) + "\n")
	long := strings.Repeat("long", 20) + "\n" + strings.Repeat("long", 20) + "\n" + strings.Repeat("long", 10) + "\n"
	require.Equal(t, "before\none\ntwo\nthree\n"+long+block, screen.text())
	write("unfinished")
	close(l.ended)
	l.Stop()
	require.Equal(t, "before\none\ntwo\nthree\n"+long+"unfinished", screen.text(), "nothing that was written is lost")
	write(" business")
	require.Contains(t, screen.text(), "unfinished business", "after the end it goes straight through")
}

func TestLiveBlockFollowsATerminalThatBecomesNarrower(t *testing.T) {
	t.Parallel()
	c := &clock{began}
	screen := newTerminal(120, 60)
	l := newLive(screen, busyRecorder(c), LiveOptions{Scenario: "steady", Duration: time.Minute}, screen.size)
	_, _ = l.Write([]byte("before\n"))
	l.show()
	for _, width := range []int{50, 30, 20} {
		screen.resize(width)
		l.show()
		require.True(t, strings.HasPrefix(screen.text(), "before\nsteady"), screen.text())
		require.Equal(t, 11, strings.Count(screen.text(), "\n")+1, screen.text())
	}
	close(l.ended)
}

func TestElsewhereLiveIsALineATick(t *testing.T) {
	t.Parallel()
	c := &clock{began}
	r := busyRecorder(c)
	r.Stage("evil\x1b[2J\nstage")
	tick := make(chan time.Time)
	var out bytes.Buffer
	l := StartLive(&out, r, LiveOptions{Tick: tick})
	tick <- began
	tick <- began
	l.Stop()
	require.Equal(t, 2, strings.Count(out.String(), "\n"), out.String())
	require.NotContains(t, out.String(), "\x1b")
	for _, want := range []string{"0:20", `evil\x1b[2J\nstage`, "sent 1,000", "submit p50 5.00 ms", "refused 1", "workers 3", "faults 1"} {
		require.Contains(t, out.String(), want)
	}
}

func TestHostileTextDoesNotReachTheTerminal(t *testing.T) {
	t.Parallel()
	c := &clock{began}
	r := newRecorder(began, c.read)
	r.Stage("\x1b]0;title\x07")
	r.Moved("", "\x1b[31mRED\r\n")
	r.Answered(began, began, "\x9b2J\u202e")
	r.Fault("\x1bc", "\xff\xfe", began, began, 1)
	screen := newTerminal(120, 24)
	l := newLive(screen, r, LiveOptions{Scenario: "a\x1b[Hb"}, screen.size)
	l.show()
	require.Empty(t, screen.strange, screen.text())
	for _, want := range []string{`a\x1b[Hb`, `\x1b]0;title\a`, `\x1b[31mred\r\n 1`, `\x9b2J\u202e`, `\x1bc`, `\xff\xfe`} {
		require.Contains(t, screen.text(), want)
	}
	close(l.ended)
}

// A rate is that of the last seconds: it must fall when nothing comes any more.
func TestRatesAreThoseOfTheLastSeconds(t *testing.T) {
	t.Parallel()
	c := &clock{began}
	r := busyRecorder(c)
	l := newLive(&bytes.Buffer{}, r, LiveOptions{}, nil)
	l.show()
	require.InDelta(t, 50, l.speed.arrivals, 1)
	for range 30 {
		c.now = c.now.Add(time.Second)
		l.show()
	}
	require.Zero(t, l.speed.arrivals)
	require.Less(t, len(l.speed.seen), 10)
}

func TestProgressByTimeAndByNumber(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o    LiveOptions
		want string
	}{
		{LiveOptions{}, "0:30"},
		{LiveOptions{Duration: time.Minute}, "50 %  0:30  left 0:30"},
		{LiveOptions{Jobs: 400}, "25 %  0:30  left 1:30"},
		{LiveOptions{Duration: time.Minute, Jobs: 125}, "80 %  0:30  left 0:07"},
		{LiveOptions{Duration: time.Second}, "100 %  0:30"},
	} {
		l := newLive(nil, nil, c.o, nil)
		s := Snapshot{Elapsed: 30 * time.Second, Numbers: Numbers{Arrivals: 100}}
		require.Equal(t, c.want, strings.TrimLeft(l.bar(s), "█░ "), "%+v", c.o)
	}
}
