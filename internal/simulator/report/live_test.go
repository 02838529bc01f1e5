package report

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
)

func busyRecorder(c *clock) *Recorder {
	r := newRecorder(began, c.read)
	r.Stage("load", func() float64 { return 0.49 })
	for i := range 1000 {
		c.now = began.Add(time.Duration(i) * 20 * time.Millisecond)
		r.Sent(1)
		r.Answered(5*time.Millisecond, Accepted)
		r.Moved("", "QUEUED")
		r.Finished(time.Second, "SUCCEEDED")
		r.Delivered(i%10 > 0)
	}
	r.Answered(time.Second, Refused)
	r.Workers(3)
	r.Fault("kill", "worker 2", c.now.Add(-2*time.Second), c.now.Add(-2*time.Second), 1)
	return r
}

func shown(w io.Writer, r *Recorder) {
	tick := make(chan time.Time)
	stop := Live(w, r, tick)
	tick <- began
	tick <- began
	stop()
}

func TestLiveOnTerminalIsOneLine(t *testing.T) {
	for _, width := range []uint16{40, 200} {
		terminal, w, err := pty.Open()
		require.NoError(t, err)
		t.Setenv("TERM", "xterm")
		require.NoError(t, pty.Setsize(w, &pty.Winsize{Rows: 24, Cols: width}))
		shown(w, busyRecorder(&clock{began}))
		require.NoError(t, w.Close())
		written, _ := io.ReadAll(terminal) // ends with an error, because the other end is closed
		require.NoError(t, terminal.Close())
		drawn := strings.Split(string(written), "\r\x1b[K")
		require.Len(t, drawn, 4, "%q: drawn twice, cleared once", written)
		require.NotEmpty(t, drawn[2])
		require.Empty(t, drawn[3], "the line is cleared")
		require.Less(t, len([]rune(drawn[1])), int(width), "the line does not wrap")
		require.Contains(t, drawn[1], "load  [#########...........] 49%  0:20")
	}
}

func TestLiveOutsideTerminalPrintsLines(t *testing.T) {
	t.Parallel()
	r := busyRecorder(&clock{began})
	r.Stage("evil\x1b[2J\nstage", nil)
	var out bytes.Buffer
	shown(&out, r)
	require.Equal(t, 2, strings.Count(out.String(), "\n"), out.String())
	require.NotContains(t, out.String(), "\x1b")
	for _, want := range []string{
		"evil?[2J?stage  0:20  sent 1,000 (50.", "submit p99 5 ms", "refused 1", "workers 3", "faults 1",
	} {
		require.Contains(t, out.String(), want)
	}
}
