package handlers

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// Of one client's lists only few are read at once, however many it asks for;
// meanwhile another one's are, and submissions, single jobs and changes pass.
func TestOneClientsReadsLeaveOthersTheirs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.StorageConnections = 20 })
	reading, goOn := make(chan job.ID, 100), make(chan struct{})
	w.jobs.list = func(_ context.Context, client job.ID, _ job.Query) (job.Page, error) {
		reading <- client
		<-goOn
		return job.Page{}, nil
	}
	var all sync.WaitGroup
	list := func(key string) {
		all.Go(func() {
			if w.send("GET", "/v1/jobs", "", "Authorization", "Bearer "+key).StatusCode != 200 {
				t.Error("the list failed")
			}
		})
	}
	for range 50 {
		list(goodKey)
	}
	<-reading
	<-reading // of four places a client gets as many as it leaves free
	list(otherKey)
	require.Equal(t, clientB, <-reading)
	require.Equal(t, 202, w.send("POST", "/v1/jobs", shortBody).StatusCode)
	require.Less(t, w.send("GET", "/v1/jobs/"+jobID.String(), "").StatusCode, 500)
	require.Less(t, w.send("POST", "/v1/jobs/"+jobID.String()+"/cancel", "").StatusCode, 500)
	close(goOn)
	all.Wait()
	require.Len(t, reading, 48)
	for range 2 { // every place was given back
		require.True(t, w.server.places.lists.TryAcquire(clientA))
	}
}

// A stream waits for no place: all of a client's come back at once when a process
// was restarted.
func TestStreamsTakeNoPlaces(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	for _, p := range []interface{ TryAcquire(client job.ID) bool }{th.server.places.lists, th.server.places.reads} {
		for p.TryAcquire(clientA) {
		}
	}
	th.open("/v1/events") // which fails the test unless the stream begins
}
