package delivery

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestAClientGetsAsManyPlacesAsItLeavesFree(t *testing.T) {
	t.Parallel()
	s := newFairSemaphore(10)
	require.Equal(t, 5, s.taken(apptest.ClientA))
	require.Equal(t, 3, s.taken(apptest.ClientB))
	require.Equal(t, 1, s.taken(job.ID{0xc}))
	for range 2 {
		s.release(apptest.ClientA)
	}
	require.Equal(t, 0, s.taken(apptest.ClientB))
	require.Equal(t, 1, s.taken(job.ID{0xc}))
	require.Equal(t, 0, s.taken(apptest.ClientA))
	require.Equal(t, 1, newFairSemaphore(1).taken(apptest.ClientA))
}

func (s *fairSemaphore) taken(client job.ID) (n int) {
	for s.tryAcquire(client) {
		n++
	}
	return n
}

func TestWhoHasTheFewestPlacesIsServedFirst(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		s := newFairSemaphore(2)
		require.True(t, s.tryAcquire(apptest.ClientA))
		require.True(t, s.tryAcquire(apptest.ClientB))
		served := make(chan job.ID, 3)
		never := make(chan struct{})
		for _, client := range []job.ID{apptest.ClientA, apptest.ClientA, {0xc}} {
			go func() {
				s.acquire(client, never)
				served <- client
			}()
			synctest.Wait()
		}
		s.release(apptest.ClientB)
		require.Equal(t, job.ID{0xc}, <-served)
		s.release(apptest.ClientA)
		require.Equal(t, apptest.ClientA, <-served)
		s.release(apptest.ClientA)
		require.Equal(t, apptest.ClientA, <-served)
	})
}

// Whoever gives up waiting leaves nothing behind, though the place may come at
// the same moment.
func TestPlacesAreNotLost(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		s := newFairSemaphore(3)
		random := &sharedRand{r: rand.New(rand.NewPCG(5, 6))}
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				client, giveUp := job.ID{byte(random.n(5))}, make(chan struct{})
				time.AfterFunc(time.Duration(random.n(20))*time.Millisecond, func() { close(giveUp) })
				if s.acquire(client, giveUp) {
					time.Sleep(time.Duration(random.n(3)) * time.Millisecond)
					s.release(client)
				}
			})
		}
		all.Wait()
		require.Equal(t, 3, s.free)
		require.Empty(t, s.clients)
		require.Empty(t, s.waiting)
	})
}
