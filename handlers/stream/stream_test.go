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
	require.Len(t, releases, 45, "the rest is reserved for clients without streams")
	require.LessOrEqual(t, max(s.byClient[clientA], s.byClient[clientB]), 30)
	first, err := s.Acquire(job.ID{15: 3})
	require.NoError(t, err)
	releases = append(releases, first)

	s.Close()
	_, err = s.Acquire(clientA)
	require.Equal(t, job.CodeStorageUnavailable, job.CodeOf(err))
	expired, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, s.Wait(expired), context.Canceled)
	for _, release := range releases {
		wg.Go(release)
		wg.Go(release) // the second call does nothing
	}
	require.NoError(t, s.Wait(context.Background()))
	wg.Wait()
	require.Zero(t, s.held)
	require.Empty(t, s.byClient)
}

// A slow reader is served if it takes each piece within the stall time. A reader that takes single bytes now and then is dropped.
func TestSlowReaders(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		takes int
		want  error
	}{"slow": {chunk, nil}, "a trickle": {1, Stalled}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe() // unbuffered: a write waits for a read
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
