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

var (
	clientA = job.ID{15: 1}
	clientB = job.ID{15: 2}
)

func TestLimiter(t *testing.T) {
	t.Parallel()
	s := NewLimiter(50, 30)
	var mu sync.Mutex
	var releases []func()
	taken := map[job.ID]int{}
	var wg sync.WaitGroup
	for range 40 {
		for _, client := range []job.ID{clientA, clientB} {
			wg.Go(func() {
				if release, err := s.Acquire(client); err == nil {
					mu.Lock()
					defer mu.Unlock()
					taken[client]++
					releases = append(releases, release)
				}
			})
		}
	}
	wg.Wait()
	require.Equal(t, 45, taken[clientA]+taken[clientB], "the others are for clients without any")
	require.LessOrEqual(t, taken[clientA], 30)
	require.LessOrEqual(t, taken[clientB], 30)

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
