package operator

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// marker is the mark function of a live: it counts its calls, and fails while its text is empty.
type marker struct {
	text  atomic.Value
	polls atomic.Int32
}

func (m *marker) Mark(context.Context) (string, error) {
	m.polls.Add(1)
	if text := m.text.Load().(string); text != "" {
		return text, nil
	}
	return "", errors.New("away")
}

// Every listener is notified of changes. Storage is polled once a second for all of them, and not at all without listeners.
func TestListenersShareOnePoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &marker{}
		m.text.Store("1")
		l := newLive(m.Mark, slog.New(slog.DiscardHandler))
		one, leaveOne := l.listen()
		two, leaveTwo := l.listen()
		time.Sleep(time.Second / 2) // between two polls
		for len(one)+len(two) > 0 { // the first poll may have been before or after the second listener
			select {
			case <-one:
			case <-two:
			}
		}
		for i, notified := range []int{1, 0, 1, 0, 1} {
			m.text.Store([]string{"2", "2", "3", "", "4"}[i])
			time.Sleep(10 * time.Second)
			require.EqualValues(t, 10*(i+1)+1, m.polls.Load())
			require.Equal(t, []int{notified, notified}, []int{len(one), len(two)}, i)
			for range notified {
				<-one
				<-two
			}
		}
		leaveOne()
		leaveTwo()
		before := m.polls.Load()
		time.Sleep(time.Minute)
		require.Equal(t, before, m.polls.Load(), "no polls without listeners")
	})
}
