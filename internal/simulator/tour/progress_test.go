package tour

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func plays(kinds ...string) (list []*kindPlay) {
	for _, kind := range kinds {
		list = append(list, &kindPlay{Row: Row{Kind: kind}})
	}
	return list
}

func TestProgressLine(t *testing.T) {
	t.Parallel()
	p := startProgress(&bytes.Buffer{}, plays("SUCCESS_FAST", "SUCCESS_NORMAL", "SUCCESS_SLOW", "FAIL_IMMEDIATE", "FAIL_AFTER_PROGRESS", "FAIL_AFTER_RETRYABLE"))
	defer p.stop()
	p.see("SUCCESS_FAST", "RUNNING")
	p.see("SUCCESS_SLOW", "QUEUED")
	require.Equal(t, "3s  0 of 6 kinds finished; waiting for SUCCESS_FAST RUNNING, SUCCESS_NORMAL, SUCCESS_SLOW QUEUED and 3 more",
		p.line(3*time.Second))
	for _, k := range p.kinds[1:] {
		p.finish(k.Kind, k.Kind != "SUCCESS_SLOW")
	}
	require.Equal(t, "1m1s  5 of 6 kinds finished, 1 differ; waiting for SUCCESS_FAST RUNNING", p.line(61*time.Second))
	p.finish("SUCCESS_FAST", true)
	require.Equal(t, "1m2s  6 of 6 kinds finished, 1 differ", p.line(62*time.Second))
}

func TestProgressPlainLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := startProgress(&out, nil)
		time.Sleep(12 * time.Second)
		p.stop()
		p.stop() // twice does no harm
		require.Equal(t, "0s  0 of 0 kinds finished\n5s  0 of 0 kinds finished\n10s  0 of 0 kinds finished\n", out.String())
	})
}

func TestProgressLiveLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, plays(make([]string, 31)...))
		p.live, p.width = true, 20
		go p.loop(liveInterval)
		time.Sleep(liveInterval / 2)
		p.stop()
		require.Equal(t, "\r\x1b[K0s  0 of 31 kinds f\r\x1b[K", out.String(), "cut to the width, and cleared at the end")
	})
}
