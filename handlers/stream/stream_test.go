package stream

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// However many streams a few clients open, one that has none gets one.
func TestTheLastStreamsAreForClientsWithoutAny(t *testing.T) {
	t.Parallel()
	l := NewLimiter(100, 60)
	greedy := func(client byte) (held int) {
		for {
			if _, err := l.Acquire(job.ID{client}); err != nil {
				return held
			}
			held++
		}
	}
	require.Equal(t, 60, greedy(1))
	require.Equal(t, 30, greedy(2), "the last tenth is not for who has some")
	_, err := l.Acquire(job.ID{1})
	require.Equal(t, job.CodeRateLimited, job.CodeOf(err))
	_, err = l.Acquire(job.ID{2})
	require.Equal(t, job.CodeQueueFull, job.CodeOf(err))
	var first func()
	for client := range byte(10) {
		release, err := l.Acquire(job.ID{100 + client})
		require.NoError(t, err)
		if first == nil {
			first = release
		}
	}
	_, err = l.Acquire(job.ID{200})
	require.Equal(t, job.CodeQueueFull, job.CodeOf(err), "all are held")
	first()
	_, err = l.Acquire(job.ID{200})
	require.NoError(t, err)
}

var (
	clientA = job.ID{15: 1}
	clientB = job.ID{15: 2}
)

func TestLimiter(t *testing.T) {
	t.Parallel()
	s := NewLimiter(50, 30)
	var mu sync.Mutex
	var releases []func()
	var wg sync.WaitGroup
	for i := range 80 {
		wg.Go(func() {
			if release, err := s.Acquire([]job.ID{clientA, clientB}[i%2]); err == nil {
				mu.Lock()
				defer mu.Unlock()
				releases = append(releases, release)
			}
		})
	}
	wg.Wait()
	require.Len(t, releases, 45, "the others are for clients without any")
	require.LessOrEqual(t, max(s.byClient[clientA], s.byClient[clientB]), 30)

	s.Close()
	_, err := s.Acquire(clientA)
	require.Equal(t, job.CodeStorageUnavailable, job.CodeOf(err))
	expired, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, s.Wait(expired), context.Canceled)
	for _, release := range releases {
		wg.Go(release)
		wg.Go(release) // twice is once
	}
	require.NoError(t, s.Wait(context.Background()))
	wg.Wait()
	require.Zero(t, s.held)
	require.Empty(t, s.byClient)
}

// A reader that is slow is served as long as it takes a piece within the stall
// time; one that takes a byte now and then is not.
func TestSlowReaders(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		takes int
		want  error
	}{"slow": {chunk, nil}, "a trickle": {1, Stalled}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe() // holds nothing: a write waits for its reads
				w := writer{conn: near, stall: 10 * time.Second}
				const pieces = 20
				done := make(chan error, 1)
				go func() { done <- w.write(make([]byte, pieces*chunk)) }()
				for len(done) == 0 {
					time.Sleep(9 * time.Second)
					_ = far.SetReadDeadline(time.Now().Add(time.Second / 2))
					_, _ = io.ReadFull(far, make([]byte, test.takes))
				}
				require.ErrorIs(t, <-done, test.want)
				require.ErrorIs(t, w.write([]byte("x")), Stalled)
				require.NoError(t, near.Close())
				require.ErrorIs(t, w.write([]byte("x")), ClientGone)
			})
		})
	}
}
