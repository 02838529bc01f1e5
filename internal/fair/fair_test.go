package fair

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClientGetsAtMostHalfOfPlaces(t *testing.T) {
	t.Parallel()
	s := New[string](10)
	require.Equal(t, 5, taken(s, "a"))
	require.Equal(t, 3, taken(s, "b"))
	require.Equal(t, 1, taken(s, "c"))
	for range 2 {
		s.Release("a")
	}
	require.Equal(t, 0, taken(s, "b"))
	require.Equal(t, 1, taken(s, "c"))
	require.Equal(t, 0, taken(s, "a"))
	require.Equal(t, 1, taken(New[string](1), "a"))
}

func taken(s *Semaphore[string], client string) (n int) {
	for s.TryAcquire(client) {
		n++
	}
	return n
}

func TestFewestPlacesServedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New[string](2)
		require.True(t, s.TryAcquire("a"))
		require.True(t, s.TryAcquire("b"))
		served := make(chan string, 3)
		never := make(chan struct{})
		for _, client := range []string{"a", "a", "c"} {
			go func() {
				s.Acquire(client, never)
				served <- client
			}()
			synctest.Wait()
		}
		s.Release("b")
		require.Equal(t, "c", <-served)
		s.Release("a")
		require.Equal(t, "a", <-served)
		s.Release("a")
		require.Equal(t, "a", <-served)
	})
}

func TestPlacesAreNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New[string](3)
		random := rand.New(rand.NewPCG(5, 6))
		var all sync.WaitGroup
		for range 200 {
			client, giveUp := strconv.Itoa(random.IntN(5)), make(chan struct{})
			patience, use := time.Duration(random.IntN(20))*time.Millisecond, time.Duration(random.IntN(3))*time.Millisecond
			all.Go(func() {
				time.AfterFunc(patience, func() { close(giveUp) })
				if s.Acquire(client, giveUp) {
					time.Sleep(use)
					s.Release(client)
				}
			})
		}
		all.Wait()
		require.Equal(t, 3, s.free)
		require.Empty(t, s.clients)
		require.Empty(t, s.waiting)
	})
}
