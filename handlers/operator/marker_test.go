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

func TestListenersShareOnePoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mark atomic.Value // result of each poll; "" makes the poll fail
		var polls atomic.Int32
		mark.Store("1")
		l := newLive(func(context.Context) (string, error) {
			polls.Add(1)
			text := mark.Load().(string)
			return text, map[string]error{"": errors.New("away")}[text]
		}, slog.New(slog.DiscardHandler))
		one, leaveOne := l.listen()
		two, leaveTwo := l.listen()
		time.Sleep(time.Second / 2)
		for len(one)+len(two) > 0 { // discard notifications of the first poll
			select {
			case <-one:
			case <-two:
			}
		}
		for i, notified := range []int{1, 0, 1, 0, 1} {
			mark.Store([]string{"2", "2", "3", "", "4"}[i])
			time.Sleep(10 * time.Second)
			require.EqualValues(t, 10*(i+1)+1, polls.Load())
			require.Equal(t, []int{notified, notified}, []int{len(one), len(two)}, i)
			for range notified {
				<-one
				<-two
			}
		}
		leaveOne()
		leaveTwo()
		before := polls.Load()
		time.Sleep(time.Minute)
		require.Equal(t, before, polls.Load(), "no polls without listeners")
	})
}
